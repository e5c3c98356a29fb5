//go:build unix

package supervise

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A leash is a small process beside us that ends the command's group when we
// are killed in a way that lets us do nothing. It holds one end of a pipe and
// notices when the other end closes without a word.
type leash struct {
	pipe *os.File
	cmd  *exec.Cmd
}

const leashDone = "done"

func startLeash(argv []string, grace time.Duration) (*leash, error) {
	if argv == nil {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command(argv[0], append(argv[1:len(argv):len(argv)], grace.String())...)
	cmd.Stdin = r
	cmd.Dir = "/"
	// A session of its own keeps the terminal's signals away from it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return &leash{pipe: w, cmd: cmd}, nil
}

// guard tells the leash which group to end.
func (l *leash) guard(group int) {
	if l != nil {
		fmt.Fprintf(l.pipe, "%d\n", group)
	}
}

// close lets the leash go in peace.
func (l *leash) close() {
	if l == nil {
		return
	}
	fmt.Fprintln(l.pipe, leashDone)
	l.pipe.Close()
	_ = l.cmd.Wait()
}

// Leash is the body of the watching process: it reads a group's number and then
// waits. When the input ends without the word that all is well, the group gets
// SIGTERM, and SIGKILL after the grace.
func Leash(in io.Reader, grace time.Duration) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	group := 0
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == leashDone {
			return nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n <= 1 {
			return fmt.Errorf("leash: %q is not a process group", text)
		}
		group = n
	}
	if group == 0 {
		return nil
	}
	_ = unix.Kill(-group, unix.SIGTERM)
	_ = unix.Kill(-group, unix.SIGCONT)
	until := time.Now().Add(grace)
	for time.Now().Before(until) {
		if unix.Kill(-group, 0) != nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = unix.Kill(-group, unix.SIGKILL)
	return nil
}
