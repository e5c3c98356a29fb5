package clustertest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Log collects what a process writes; safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Has tells whether the text was written.
func (l *Log) Has(text string) bool { return strings.Contains(l.String(), text) }

// Process is a running program in a process group of its own. It is killed when
// this test process ends, in whatever way.
type Process struct {
	Out, Err *Log

	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// StartProcess starts a program with our environment less HOLDFAST_*, plus env.
// It is killed at the end of the test, if it still runs.
func StartProcess(t testing.TB, env []string, path string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, Out: &Log{}, Err: &Log{}, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.Out, p.Err
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "HOLDFAST_") && !strings.HasPrefix(pair, "GORACE=") {
			p.cmd.Env = append(p.cmd.Env, pair)
		}
	}
	p.cmd.Env = append(p.cmd.Env, "GORACE=halt_on_error=1 exitcode=66")
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// A grandchild that outlives a killed process may hold its output open.
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its result is in ProcessState
		close(p.done)
	}()
	t.Cleanup(p.Kill)
	return p
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process alone.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Errorf("signal %v to %s: %v", sig, p.cmd.Path, err)
	}
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended tells whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Wait returns the exit code, 128+n if signal n ended the process.
func (p *Process) Wait(limit time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.code()
	case <-timer.C:
		p.t.Fatalf("%v has not ended within %v\nstdout: %s\nstderr: %s", p.cmd.Args, limit, p.Out, p.Err)
		return -1
	}
}

func (p *Process) code() int {
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// checkClean reports what no log of ours may hold: a data race, a panic, the
// trace of a goroutine.
func checkClean(t testing.TB, name string, log *Log) {
	t.Helper()
	text := log.String()
	for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: ", "\ngoroutine "} {
		if i := strings.Index(text, bad); i >= 0 {
			t.Errorf("%s wrote:\n%s", name, text[i:min(len(text), i+8000)])
			return
		}
	}
}

// dump shows the end of a log.
func dump(w io.Writer, name string, log *Log) {
	const most = 12 << 10
	text := log.String()
	if len(text) > most {
		text = "...\n" + text[len(text)-most:]
	}
	fmt.Fprintf(w, "--- %s\n%s", name, text)
}
