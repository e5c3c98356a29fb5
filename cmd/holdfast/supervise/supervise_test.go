//go:build unix

package supervise

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary stands in for the program: as the process on the leash, and as
// a supervisor that is killed.
const roleEnv = "SUPERVISE_TEST_ROLE"

// terminalRole is set where there are terminals.
var terminalRole func(script string, pipeline bool)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "leash":
		grace, err := time.ParseDuration(os.Args[len(os.Args)-1])
		if err == nil {
			err = Leash(os.Stdin, os.Stdout, grace)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "terminal", "pipeline":
		pipeline := os.Getenv(roleEnv) == "pipeline"
		os.Setenv(roleEnv, "leash")
		terminalRole(os.Args[len(os.Args)-1], pipeline)
		os.Exit(0)
	case "supervisor":
		os.Setenv(roleEnv, "leash")
		_, err := Run(Command{
			Path: "/bin/sh", Args: []string{"sh", "-c", os.Args[len(os.Args)-1]}, Env: os.Environ(),
			Stdin: os.Stdin, Out: os.Stdout, Err: os.Stderr, Lease: time.Second, KillAfter: time.Second,
			Leash: []string{os.Args[0]}, Log: func(string, ...any) {},
		}, newFakeLock(time.Hour))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // of the roles above; a second each
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.loop"), goleak.IgnoreTopFunction("os/signal.signal_recv"))
}

// fakeLock is a lock whose time a test decides.
type fakeLock struct {
	mu   sync.Mutex
	end  time.Time
	lost chan struct{}
}

func newFakeLock(d time.Duration) *fakeLock {
	return &fakeLock{end: time.Now().Add(d), lost: make(chan struct{})}
}

func (l *fakeLock) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.end)
}

func (l *fakeLock) Lost() <-chan struct{} { return l.lost }

func (l *fakeLock) renew(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = time.Now().Add(d)
}

// trial is one supervised shell script whose output can be read as it comes.
type trial struct {
	t       *testing.T
	lock    *fakeLock
	signals chan os.Signal
	lines   *bufio.Scanner
	done    chan struct{}
	result  Result
	err     error
	ended   time.Time
}

func start(t *testing.T, lock *fakeLock, lease, killAfter time.Duration, script string) *trial {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	devNull, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	tr := &trial{
		t: t, lock: lock, signals: make(chan os.Signal, 8),
		lines: bufio.NewScanner(r), done: make(chan struct{}),
	}
	go func() {
		defer close(tr.done)
		defer w.Close()
		defer devNull.Close()
		tr.result, tr.err = Run(Command{
			Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ(),
			Stdin: devNull, Out: w, Err: devNull, Lease: lease, KillAfter: killAfter,
			Signals: tr.signals, Log: t.Logf,
		}, lock)
		tr.ended = time.Now()
	}()
	return tr
}

// line waits for the script's next line.
func (tr *trial) line() string {
	tr.t.Helper()
	if !tr.lines.Scan() {
		tr.t.Fatalf("the script's output ended: %v", tr.lines.Err())
	}
	return tr.lines.Text()
}

func (tr *trial) expect(want string) {
	tr.t.Helper()
	if got := tr.line(); got != want {
		tr.t.Fatalf("the script said %q, want %q", got, want)
	}
}

func (tr *trial) finish() Result {
	tr.t.Helper()
	<-tr.done
	if tr.err != nil {
		tr.t.Fatal(tr.err)
	}
	return tr.result
}

func TestExitCodeIsPassedOn(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -TERM $$": 143} {
		got := start(t, newFakeLock(time.Minute), time.Minute, time.Second, script).finish()
		if want := (Result{Started: true, Code: want}); got != want {
			t.Errorf("%q: %+v, want %+v", script, got, want)
		}
	}
}

func TestSignalReachesTheWholeGroup(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1} {
		name := strconv.Itoa(int(sig))
		// The inner shell is what a signal to the outer one alone would miss.
		tr := start(t, newFakeLock(time.Minute), time.Minute, time.Second, `
			trap : `+name+`
			sh -c 'trap "echo inner; exit 3" `+name+`; echo ready; while :; do sleep 0.01; done'
			exit $?`)
		tr.expect("ready")
		tr.signals <- sig
		tr.expect("inner")
		if got := tr.finish(); got.Code != 3 || got.Lost {
			t.Errorf("%v: %+v", sig, got)
		}
	}
}

func TestInterruptBeforeTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "started")
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGWINCH // says nothing
	signals <- syscall.SIGINT
	got, err := Run(Command{
		Path: "/bin/sh", Args: []string{"sh", "-c", "touch " + path}, Stdin: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Lease: time.Minute, Signals: signals, Log: t.Logf,
	}, newFakeLock(time.Minute))
	if want := (Result{Interrupt: syscall.SIGINT}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the command was started")
	}
}

func TestLockGoneBeforeTheStart(t *testing.T) {
	gone := newFakeLock(time.Minute)
	close(gone.lost)
	for name, lock := range map[string]*fakeLock{"lost": gone, "over": newFakeLock(-time.Second), "nearly over": newFakeLock(time.Millisecond)} {
		got := start(t, lock, 10*time.Second, time.Second, "echo never").finish()
		if want := (Result{Lost: true}); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestLossEndsTheWholeGroup(t *testing.T) {
	lock := newFakeLock(time.Minute)
	tr := start(t, lock, time.Minute, 200*time.Millisecond, `
		trap "echo outer; exit 0" TERM
		sh -c 'trap "" TERM; echo inner $$; while :; do sleep 0.01; done' &
		wait`)
	inner, _ := strconv.Atoi(strings.TrimPrefix(tr.line(), "inner "))
	close(lock.lost)
	tr.expect("outer")
	// The shell obeyed; the process that did not has to be gone as well.
	if got := tr.finish(); !got.Lost || got.Code != 0 || got.Remains {
		t.Errorf("%+v", got)
	}
	if err := syscall.Kill(inner, 0); err == nil && !isZombie(inner) {
		t.Error("a process of the command lives on")
	}
}

func isZombie(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

func TestLossIsToldEvenIfTheCommandEndsWell(t *testing.T) {
	lock := newFakeLock(time.Minute)
	tr := start(t, lock, time.Minute, time.Minute, `trap "exit 0" TERM; echo ready; while :; do sleep 0.01; done`)
	tr.expect("ready")
	close(lock.lost)
	if got := tr.finish(); !got.Lost || got.Code != 0 {
		t.Errorf("%+v", got)
	}
}

func TestKilledBeforeTheLeaseEnds(t *testing.T) {
	const lease = 2 * time.Second
	lock := newFakeLock(lease)
	end := time.Now().Add(lease)
	tr := start(t, lock, lease, time.Minute, `trap "echo term" TERM; while :; do sleep 0.01; done`)
	tr.expect("term")
	if left := time.Until(end); left < 100*time.Millisecond {
		t.Errorf("SIGTERM came only %v before the end of the lease", left)
	}
	got := tr.finish()
	if !got.Lost || got.Code != 137 {
		t.Errorf("%+v", got)
	}
	// The lock's safe end lies a tenth of the lease before the real one; that is
	// room enough for a busy machine to deliver the signal.
	if real := end.Add(lease / 10); tr.ended.After(real) {
		t.Errorf("it ran until %v after the end of the lease", tr.ended.Sub(real))
	}
}

func TestMissedRenewalsAreRiddenOut(t *testing.T) {
	const lease = time.Second
	lock := newFakeLock(lease)
	tr := start(t, lock, lease, time.Minute, "echo ready; read line < "+fifo(t)+"; exit 5")
	tr.expect("ready")
	// Renewed late, but before the warning: what an election looks like.
	<-time.After(lease / 2)
	lock.renew(time.Minute)
	open, err := os.OpenFile(lastFifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(open, "go")
	open.Close()
	if got := tr.finish(); got.Lost || got.Code != 5 {
		t.Errorf("%+v", got)
	}
}

var lastFifo string

func fifo(t *testing.T) string {
	t.Helper()
	lastFifo = filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(lastFifo, 0o600); err != nil {
		t.Fatal(err)
	}
	return lastFifo
}

func TestStoppedCommandIsEndedToo(t *testing.T) {
	lock := newFakeLock(time.Minute)
	tr := start(t, lock, time.Minute, 5*time.Second, `trap "echo term; exit 0" TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done`)
	tr.expect("ready")
	close(lock.lost)
	tr.expect("term")
	if got := tr.finish(); !got.Lost {
		t.Errorf("%+v", got)
	}
}

func TestLeadLeavesRoomForAnElection(t *testing.T) {
	for lease := time.Second; lease <= 255*time.Second; lease += time.Second {
		lead, margin := Lead(lease, 10*time.Second)
		if room := lease - lease/3 - lead; room < lease/3 {
			t.Errorf("lease %v: a renewal may be late by only %v", lease, room)
		}
		if margin >= lead || margin <= 0 {
			t.Errorf("lease %v: lead %v, margin %v", lease, lead, margin)
		}
	}
}
