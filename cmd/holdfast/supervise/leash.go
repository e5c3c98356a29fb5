//go:build unix

package supervise

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A leash is a small process that ends the command's group when we are killed in
// a way that lets us do nothing. It holds one end of a pipe and notices when the
// other end closes without a word.
//
// It leads the group, and the command joins it: so there is no moment at which
// the command runs and the leash does not know of it, and the group's number
// cannot be anybody else's while the leash lives.
type leash struct {
	pipe *os.File
	cmd  *exec.Cmd
}

const (
	leashReady = "ready"
	leashDone  = "done"
)

// startLeash returns when the leash is on guard. A nil leash does nothing.
func startLeash(argv []string, grace time.Duration) (*leash, error) {
	if argv == nil {
		return nil, nil
	}
	cmd := exec.Command(argv[0], append(argv[1:len(argv):len(argv)], grace.String())...)
	cmd.Args[0] = os.Args[0] // a name that an operator recognises
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	r, out, err := os.Pipe()
	if err != nil {
		w.Close()
		return nil, err
	}
	defer r.Close()
	cmd.Stdin, cmd.Stdout = in, out
	err = cmd.Start()
	out.Close()
	if err != nil {
		w.Close()
		return nil, err
	}
	l := &leash{pipe: w, cmd: cmd}
	if line, err := bufio.NewReader(r).ReadString('\n'); strings.TrimSpace(line) != leashReady {
		l.close()
		return nil, fmt.Errorf("it is not ready: %q, %v", line, err)
	}
	return l, nil
}

// group is the number of the process group to join, 0 for a new one.
func (l *leash) group() int {
	if l == nil {
		return 0
	}
	return l.cmd.Process.Pid
}

// close lets the leash go in peace. It may be called again.
func (l *leash) close() {
	if l == nil || l.pipe == nil {
		return
	}
	fmt.Fprintln(l.pipe, leashDone)
	l.pipe.Close()
	l.pipe = nil
	_ = l.cmd.Wait()
}

// Leash is the body of the process on guard. When in ends without the word that
// all is well, the process group, its own, gets SIGTERM, and after the grace
// SIGKILL, of which it dies itself.
func Leash(in io.Reader, out io.Writer, grace time.Duration) error {
	// It gets what its group gets, and must outlive all of it.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGALRM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	if _, err := fmt.Fprintln(out, leashReady); err != nil {
		return err
	}
	if line, _ := bufio.NewReader(in).ReadString('\n'); strings.TrimSpace(line) == leashDone {
		return nil
	}
	_ = unix.Kill(0, unix.SIGTERM)
	_ = unix.Kill(0, unix.SIGCONT)
	time.Sleep(grace)
	return unix.Kill(0, unix.SIGKILL)
}
