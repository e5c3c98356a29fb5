package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A raft future may never be answered once a storage fault has ended raft's main
// loop, and there is no way to stop waiting for one: its waiter is left behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hashicorp/raft.(*deferError).Error"))
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	within(t, 20*time.Second, what, cond)
}

func within(t *testing.T, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-end.C:
			t.Fatalf("not within %v: %s", limit, what)
		case <-tick.C:
		}
	}
}

var lastPort = struct {
	sync.Mutex
	n int
}{n: 12000 + os.Getpid()%150*100}

// freePort returns a port below the ephemeral range: one inside it could be taken
// by an outgoing connection while its node is down.
func freePort(t *testing.T) int {
	t.Helper()
	lastPort.Lock()
	defer lastPort.Unlock()
	for range 5000 {
		lastPort.n++
		if lastPort.n >= 30000 {
			lastPort.n = 12000
		}
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lastPort.n))
		if err == nil {
			_ = ln.Close()
			return lastPort.n
		}
	}
	t.Fatal("no free port")
	return 0
}

// logBuffer keeps a node's log lines for tests that look at them.
type logBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) has(s string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.buf.String(), s)
}

// tracker is a Follower that records its calls and checks their order.
type tracker struct {
	mu      sync.Mutex
	leading bool
	terms   []leadTerm
	bad     string
}

type leadTerm struct {
	epoch uint64
	base  time.Duration
}

func (f *tracker) Lead(epoch uint64, base time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leading {
		f.bad = "Lead while leading"
	}
	if n := len(f.terms); n > 0 && f.terms[n-1].epoch >= epoch {
		f.bad = "epoch did not rise"
	}
	f.leading = true
	f.terms = append(f.terms, leadTerm{epoch, base})
}

func (f *tracker) Follow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.leading {
		f.bad = "Follow while following"
	}
	f.leading = false
}

func (f *tracker) current() (leadTerm, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.leading {
		return leadTerm{}, false
	}
	return f.terms[len(f.terms)-1], true
}

// testNode is a place where a node runs: it can be stopped, wiped and started.
type testNode struct {
	t     *testing.T
	cfg   Config
	opt   options
	n     *Node
	f     *tracker
	lines *logBuffer
}

type testCluster struct {
	t     *testing.T
	nodes []*testNode
}

// newCluster prepares size nodes; none is started.
func newCluster(t *testing.T, size int) *testCluster {
	t.Helper()
	c := &testCluster{t: t}
	var peers []Peer
	for i := range size {
		peers = append(peers, Peer{ID: fmt.Sprintf("n%d", i+1), Addr: fmt.Sprintf("127.0.0.1:%d", freePort(t))})
	}
	dir := t.TempDir()
	for _, p := range peers {
		cfg := DefaultConfig()
		cfg.NodeID, cfg.ClusterName, cfg.Peers = p.ID, "test", peers
		cfg.DataDir = filepath.Join(dir, p.ID)
		cfg.PeerAddr = p.Addr
		cfg.AdvertiseClientAddr, cfg.AdvertiseAdminAddr = p.ID+".client:1", p.ID+".admin:2"
		lines := &logBuffer{}
		cfg.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(lines, testLog{t, p.ID}), &slog.HandlerOptions{Level: slog.LevelInfo}))
		c.nodes = append(c.nodes, &testNode{t: t, cfg: cfg, lines: lines})
	}
	t.Cleanup(func() {
		for _, tn := range c.nodes {
			tn.kill()
		}
	})
	return c
}

// testLog shows the node's lines with -v when HOLDFAST_TEST_LOG is set.
type testLog struct {
	t  *testing.T
	id string
}

func (l testLog) Write(p []byte) (int, error) {
	if os.Getenv("HOLDFAST_TEST_LOG") != "" {
		fmt.Fprintf(os.Stderr, "%s %s", l.id, p)
	}
	return len(p), nil
}

func (tn *testNode) start() *testNode {
	tn.t.Helper()
	if err := tn.tryStart(); err != nil {
		tn.t.Fatal(err)
	}
	return tn
}

func (tn *testNode) tryStart() error {
	n, err := open(tn.cfg, tn.opt)
	if err != nil {
		return err
	}
	f := &tracker{}
	if err := n.Start(f); err != nil {
		_ = n.Kill()
		return err
	}
	tn.n, tn.f = n, f
	return nil
}

func (tn *testNode) kill() {
	tn.t.Helper()
	if tn.n == nil {
		return
	}
	if err := tn.n.Kill(); err != nil {
		tn.t.Errorf("%s: kill: %v", tn.cfg.NodeID, err)
	}
	tn.checkStopped()
}

func (tn *testNode) shutdown() {
	tn.t.Helper()
	if err := tn.n.Shutdown(context.Background()); err != nil {
		tn.t.Errorf("%s: shutdown: %v", tn.cfg.NodeID, err)
	}
	tn.checkStopped()
}

func (tn *testNode) checkStopped() {
	tn.t.Helper()
	tn.f.mu.Lock()
	defer tn.f.mu.Unlock()
	if tn.f.bad != "" {
		tn.t.Errorf("%s: %s", tn.cfg.NodeID, tn.f.bad)
	}
	if tn.f.leading {
		tn.t.Errorf("%s: stopped without Follow", tn.cfg.NodeID)
	}
	tn.n = nil
}

// wipe removes the data directory, as a lost disk would.
func (tn *testNode) wipe() {
	tn.t.Helper()
	if err := os.RemoveAll(tn.cfg.DataDir); err != nil {
		tn.t.Fatal(err)
	}
}

func (c *testCluster) start() *testCluster {
	c.t.Helper()
	for _, tn := range c.nodes {
		tn.start()
	}
	return c
}

func (c *testCluster) running() (res []*testNode) {
	for _, tn := range c.nodes {
		if tn.n != nil {
			res = append(res, tn)
		}
	}
	return res
}
