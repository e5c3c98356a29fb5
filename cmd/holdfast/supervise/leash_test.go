//go:build unix

package supervise

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestSupervisorKilled kills the supervisor in the one way it cannot notice.
func TestSupervisorKilled(t *testing.T) {
	for name, script := range map[string]string{
		"obedient":  `sh -c 'echo ready; while :; do sleep 0.01; done'; exit 0`,
		"obstinate": `trap "" TERM; sh -c 'echo ready; while :; do sleep 0.01; done'; while :; do sleep 0.01; done`,
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		attr := &os.ProcAttr{Files: []*os.File{nil, w, os.Stderr}, Env: append(os.Environ(), roleEnv+"=supervisor")}
		p, err := os.StartProcess(os.Args[0], []string{os.Args[0], script}, attr)
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		in := bufio.NewReader(r)
		if line, err := in.ReadString('\n'); line != "ready\n" {
			t.Fatal(line, err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		_, _ = p.Wait()
		// The pipe ends when the last process that could write to it has ended.
		r.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, in); err != nil {
			t.Errorf("%s: the command lives on: %v", name, err)
		}
		r.Close()
	}
}

func TestFind(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"sh": nil, "/bin/sh": nil, "no-such-command": ErrNotFound, "/no/such": ErrNotFound, plain: ErrNotExecutable} {
		if _, err := Find(name); err != want {
			t.Errorf("Find(%q): %v, want %v", name, err, want)
		}
	}
}

func TestIgnoredSignalsStayIgnored(t *testing.T) {
	signal.Ignore(syscall.SIGUSR2)
	defer signal.Reset(syscall.SIGUSR2)
	for _, sig := range Caught() {
		if sig == syscall.SIGUSR2 {
			t.Error("an ignored signal is caught")
		}
	}
}
