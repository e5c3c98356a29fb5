package supervise

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() { terminalRole = onTerminal }

// openPty makes a pseudo-terminal: what a user's terminal window holds, and what
// the programs in it see.
func openPty(t *testing.T) (window, tty *os.File) {
	t.Helper()
	window, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { window.Close() })
	if err := unix.IoctlSetPointerInt(int(window.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(window.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return window, tty
}

// onTerminal is the role of a supervisor with a terminal. It reports the exit
// code, and whether it has its terminal back.
func onTerminal(script string, pipeline bool) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, Caught()...)
	out := os.Stdout
	if pipeline { // our output goes elsewhere, so we are not plainly interactive
		out = os.Stderr
	}
	result, err := Run(Command{
		Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ(),
		Stdin: os.Stdin, Out: out, Err: out, Lease: time.Minute, KillAfter: time.Second,
		Signals: signals, Leash: []string{os.Args[0]}, Log: func(string, ...any) {},
	}, newFakeLock(time.Hour))
	front, _ := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	fmt.Fprintf(out, "code %d, terminal back %v, error %v\n", result.Code, front == unix.Getpgrp(), err)
}

// session starts a supervisor on a new terminal and returns its output.
func session(t *testing.T, role, script string) (window *os.File, lines *bufio.Scanner, wait func()) {
	t.Helper()
	window, tty := openPty(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	files := []*os.File{tty, tty, tty}
	from := window
	if role == "pipeline" {
		files[2], from = w, r
	}
	p, err := os.StartProcess(os.Args[0], []string{os.Args[0], script}, &os.ProcAttr{
		Files: files, Env: append(os.Environ(), roleEnv+"="+role),
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0},
	})
	if err != nil {
		t.Fatal(err)
	}
	tty.Close()
	w.Close()
	t.Cleanup(func() { r.Close() })
	return window, bufio.NewScanner(from), func() {
		if _, err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// await reads until a line contains want; a terminal also echoes what was typed.
func await(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	var seen []string
	for lines.Scan() {
		if seen = append(seen, lines.Text()); strings.Contains(lines.Text(), want) {
			return
		}
	}
	t.Fatalf("no %q in %q", want, seen)
}

func TestCommandReadsTheTerminal(t *testing.T) {
	for _, role := range []string{"terminal", "pipeline"} {
		window, lines, wait := session(t, role, `echo ready; read word; echo "got-$word"; exit 4`)
		await(t, lines, "ready")
		fmt.Fprintln(window, "hello")
		await(t, lines, "got-hello")
		await(t, lines, "code 4, terminal back true, error <nil>")
		wait()
	}
}

func TestCtrlCReachesTheCommand(t *testing.T) {
	window, lines, wait := session(t, "terminal", `trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.01; done`)
	await(t, lines, "ready")
	fmt.Fprint(window, "\x03")
	await(t, lines, "interrupted")
	await(t, lines, "code 9, terminal back true")
	wait()
}

// TestCtrlZWithoutAShell stops a command where nobody could let it go on again:
// it goes on by itself.
func TestCtrlZWithoutAShell(t *testing.T) {
	window, lines, wait := session(t, "terminal", `echo ready; read word; echo "got-$word"`)
	await(t, lines, "ready")
	fmt.Fprint(window, "\x1a")
	fmt.Fprintln(window, "hello")
	await(t, lines, "got-hello")
	await(t, lines, "code 0, terminal back true")
	wait()
}
