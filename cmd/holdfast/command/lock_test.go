package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/client"
)

// fakeLocker answers acquires as a test tells it.
type fakeLocker struct {
	acquire func(ctx context.Context) (heldLock, error)
}

func (l *fakeLocker) Acquire(ctx context.Context, _ string, _, _ time.Duration) (heldLock, error) {
	return l.acquire(ctx)
}

func (l *fakeLocker) Close() {}

// fakeGrant is a lock that does not end by itself.
type fakeGrant struct {
	lost       chan struct{}
	releaseErr error
	released   int
}

func newFakeGrant() *fakeGrant { return &fakeGrant{lost: make(chan struct{})} }

func (g *fakeGrant) Remaining() time.Duration      { return time.Minute }
func (g *fakeGrant) Lost() <-chan struct{}         { return g.lost }
func (g *fakeGrant) Token() uint64                 { return 42 }
func (g *fakeGrant) Release(context.Context) error { g.released++; return g.releaseErr }

// runLock runs "holdfast lock key -- sh -c SCRIPT" on a fake lock.
func runLock(t *testing.T, locks locker, script string) (code int, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	a := newApp([]string{"PATH=" + os.Getenv("PATH"), "HOLDFAST_TOKEN=1"}, Streams{In: null, Out: os.Stdout, Err: &errs})
	a.leash = nil
	a.openLocker = func(context.Context, []string) (locker, error) { return locks, nil }
	code = a.run(context.Background(), []string{"lock", "key", "--", "sh", "-c", script})
	return code, errs.String()
}

func granted(g *fakeGrant) locker {
	return &fakeLocker{func(context.Context) (heldLock, error) { return g, nil }}
}

func TestLockReleasesAndPassesTheCodeOn(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	g := newFakeGrant()
	code, stderr := runLock(t, granted(g), "echo $HOLDFAST_KEY $HOLDFAST_TOKEN $HOLDFAST_LEASE > "+out+"; exit 3")
	if code != 3 || g.released != 1 || stderr != "" {
		t.Errorf("code %d, released %d times, stderr %q", code, g.released, stderr)
	}
	if text, _ := os.ReadFile(out); string(text) != "key 42 15\n" {
		t.Errorf("the command saw %q", text)
	}
}

func TestLockLostOrNot(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code int
		says string
	}{
		"lost":        {client.ErrNotHeld, ExitLost, "lost while the command ran"},
		"unreachable": {client.ErrUnavailable, 0, "stays taken until its lease ends"},
	} {
		g := newFakeGrant()
		g.releaseErr = &client.Error{Op: "release", Key: "key", Kind: c.err}
		code, stderr := runLock(t, granted(g), "exit 0")
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: code %d, stderr %q", name, code, stderr)
		}
	}
}

// TestInterruptWhileWaiting sends the signal while the acquire is under way, and
// lets the grant win the race as well as lose it.
func TestInterruptWhileWaiting(t *testing.T) {
	for _, grantWins := range []bool{false, true} {
		started := filepath.Join(t.TempDir(), "started")
		g := newFakeGrant()
		locks := &fakeLocker{func(ctx context.Context) (heldLock, error) {
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				return nil, err
			}
			<-ctx.Done()
			if grantWins {
				return g, nil
			}
			return nil, ctx.Err()
		}}
		code, _ := runLock(t, locks, "touch "+started)
		if code != 128+int(syscall.SIGTERM) {
			t.Errorf("code %d", code)
		}
		if _, err := os.Stat(started); err == nil {
			t.Error("the command was started")
		}
		if grantWins != (g.released == 1) {
			t.Errorf("released %d times", g.released)
		}
	}
}

func TestExitCodesOfClientErrors(t *testing.T) {
	for kind, want := range map[error]int{
		client.ErrNotHeld: 1, client.ErrUnavailable: 69, client.ErrBusy: 73, client.ErrTimeout: 75,
		client.ErrIndeterminate: 76, client.ErrRefused: 77,
	} {
		err := fmt.Errorf("wrapped: %w", &client.Error{Op: "acquire", Key: "key", Kind: kind, Cause: errors.New("two\nlines")})
		code, text := explain(err)
		if code != want || strings.Contains(text, "\n") {
			t.Errorf("%v: code %d, want %d; %q", kind, code, want, text)
		}
		g := &fakeLocker{func(context.Context) (heldLock, error) { return nil, err }}
		if code, _ := runLock(t, g, "exit 0"); code != want {
			t.Errorf("lock, %v: code %d, want %d", kind, code, want)
		}
	}
}
