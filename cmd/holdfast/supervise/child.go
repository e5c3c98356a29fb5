//go:build unix

package supervise

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Caught lists the signals to subscribe to for Command.Signals: those that a
// user or a system sends to a job and that the command should see. A signal that
// was ignored when we were started (nohup, a background job of a script) is left
// ignored, for the command too.
func Caught() []os.Signal {
	all := []os.Signal{
		unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT,
	}
	var caught []os.Signal
	for _, sig := range all {
		if !signal.Ignored(sig) {
			caught = append(caught, sig)
		}
	}
	return caught
}

// Stops tells whether the signal asks a process to end.
func Stops(sig syscall.Signal) bool {
	return sig == unix.SIGINT || sig == unix.SIGTERM || sig == unix.SIGHUP || sig == unix.SIGQUIT
}

// ErrNotFound and ErrNotExecutable tell why a command cannot be run.
var (
	ErrNotFound      = errors.New("command not found")
	ErrNotExecutable = errors.New("command is not executable")
)

// Find looks up a command as a shell would. The error is, for errors.Is,
// ErrNotFound or ErrNotExecutable.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil // asked for by PATH: as a shell, we do as it says
	case errors.Is(err, os.ErrPermission), strings.Contains(name, "/") && exists(name):
		return "", ErrNotExecutable
	default:
		return "", ErrNotFound
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// child is the started command and its process group.
type child struct {
	pid     int
	group   int
	changes chan unix.WaitStatus // stops, and at last the end
}

// startChild starts the command in the given group, or in a new one for 0.
func startChild(cmd Command, tty *terminal, group int) (*child, error) {
	c := exec.Cmd{
		Path: cmd.Path, Args: cmd.Args, Env: cmd.Env,
		Stdin: cmd.Stdin, Stdout: cmd.Out, Stderr: cmd.Err,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pgid: group},
	}
	if tty.handOver() {
		c.SysProcAttr.Foreground = true
		c.SysProcAttr.Ctty = int(tty.file.Fd())
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	tty.afterStart()
	ch := &child{pid: c.Process.Pid, group: group, changes: make(chan unix.WaitStatus, 1)}
	if group == 0 {
		ch.group = ch.pid
	}
	// We wait by number, because os.Process does not report stops.
	_ = c.Process.Release()
	go ch.wait()
	return ch, nil
}

// wait reports every change until the child has ended.
func (c *child) wait() {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(c.pid, &status, unix.WUNTRACED, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		c.changes <- status
		if err != nil || !status.Stopped() {
			return
		}
	}
}

// signal sends to every process of the group. That the group is gone already is
// no error: its end is reported by wait.
func (c *child) signal(sig syscall.Signal) { _ = unix.Kill(-c.group, sig) }

// groupGone tells whether the last process of the group has ended. It is asked
// only after the child was reaped, and collects orphans that have become ours.
func (c *child) groupGone() bool {
	for {
		pid, err := unix.Wait4(-c.group, nil, unix.WNOHANG, nil)
		if pid <= 0 || err != nil {
			break
		}
	}
	return errors.Is(unix.Kill(-c.group, 0), unix.ESRCH)
}
