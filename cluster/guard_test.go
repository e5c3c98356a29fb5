package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
)

// failAt fails the nth call of an operation, from the first armed call on.
func failAt(op string, nth int, after bool, err error) storeHook {
	var seen atomic.Int64
	return func(got string, _ uint64, isAfter bool) error {
		if got == op && isAfter == after && seen.Add(1) == int64(nth) {
			return err
		}
		return nil
	}
}

// armed is a hook that does nothing until armed.
type armed struct{ hook atomic.Pointer[storeHook] }

func (a *armed) call(op string, n uint64, after bool) error {
	if h := a.hook.Load(); h != nil {
		return (*h)(op, n, after)
	}
	return nil
}

func (a *armed) arm(h storeHook) { a.hook.Store(&h) }

func faultyCluster(t *testing.T) (*testCluster, map[*testNode]*armed) {
	c := newCluster(t, 3)
	hooks := map[*testNode]*armed{}
	for _, tn := range c.nodes {
		a := &armed{}
		hooks[tn] = a
		tn.opt.hook = a.call
	}
	return c.start(), hooks
}

func failedWithin(t *testing.T, tn *testNode, limit time.Duration) error {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-tn.n.Failed():
		return err
	case <-timer.C:
		t.Fatalf("%s did not fail within %v", tn.cfg.NodeID, limit)
		return nil
	}
}

func TestStoreErrorEndsTheLeader(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after=%v", after), func(t *testing.T) {
			c, hooks := faultyCluster(t)
			first := c.grant("a")
			old := c.leader()
			term, _ := old.f.current()
			hooks[old].arm(failAt("append to the log", 1, after, errors.New("input/output error")))
			p := old.propose(term.epoch, term.base, grantOp("b"))
			if !errors.Is(p.err, fsm.ErrUnknown) {
				t.Fatalf("proposal at a failing disk: %+v", p)
			}
			err := failedWithin(t, old, time.Second)
			if !strings.Contains(err.Error(), "input/output error") || !strings.Contains(err.Error(), "append to the log") {
				t.Fatal(err)
			}
			eventually(t, "Follow", func() bool { _, ok := old.f.current(); return !ok })
			if old.n.Ready() == nil || old.n.Liveness() == nil {
				t.Fatal("a failed node says that it is well")
			}
			if p := old.propose(term.epoch, term.base, grantOp("c")); !errors.Is(p.err, fsm.ErrNotExecuted) {
				t.Fatalf("proposal after the failure: %+v", p)
			}
			c.leaderOfRest(old)
			old.kill()
			old.opt.hook = nil
			old.start()
			if second := c.grant("d"); second <= first {
				t.Fatalf("token %d after %d", second, first)
			}
		})
	}
}

func TestStoreErrorEndsAFollower(t *testing.T) {
	c, hooks := faultyCluster(t)
	c.grant("a")
	tn := c.follower()
	hooks[tn].arm(failAt("append to the log", 1, false, errors.New("no space left on device")))
	c.grant("b")
	if err := failedWithin(t, tn, 5*time.Second); !strings.Contains(err.Error(), "no space left") {
		t.Fatal(err)
	}
	tn.kill()
	c.grant("c")
}

// A write of term or vote that fails makes raft panic: it must not.
func TestFailedVoteWriteEndsTheNodeWithoutAPanic(t *testing.T) {
	c, hooks := faultyCluster(t)
	c.grant("a")
	tn, lead := c.follower(), c.leader()
	hooks[tn].arm(failAt("write raft's term or vote", 1, false, errors.New("input/output error")))
	lead.kill()
	if err := failedWithin(t, tn, 10*time.Second); !strings.Contains(err.Error(), "term or vote") {
		t.Fatal(err)
	}
}

func TestHangingDiskOfTheLeader(t *testing.T) {
	c, hooks := faultyCluster(t)
	c.grant("a")
	old := c.leader()
	term, _ := old.f.current()
	release := make(chan struct{})
	defer close(release)
	hooks[old].arm(func(op string, _ uint64, after bool) error {
		if op == "append to the log" && !after {
			<-release
		}
		return nil
	})
	entry, err := fsm.AppendEntry(nil, &fsm.Entry{Epoch: term.epoch, Stamp: term.base, Ops: []fsm.Op{grantOp("b")}})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan proposal, 1)
	old.n.Propose(entry, func(res fsm.Result, err error) { answered <- proposal{res, err} })
	start := time.Now()
	if err := failedWithin(t, old, 5*time.Second); !strings.Contains(err.Error(), "hangs") {
		t.Fatal(err)
	}
	if took := time.Since(start); took < old.cfg.StoreTimeout-100*time.Millisecond {
		t.Fatalf("failed after %v, before the timeout", took)
	}
	next := c.leaderOfRest(old)
	t.Logf("another leader %v after the hang began", time.Since(start))
	if next == old {
		t.Fatal("the hanging node leads")
	}
	// The node can be ended although raft's main loop never returns.
	n := old.n
	old.n = nil
	stopped := make(chan error, 1)
	go func() { stopped <- n.Kill() }()
	release <- struct{}{} // one blocked call; it ends its goroutine and writes nothing
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if p := <-answered; !errors.Is(p.err, fsm.ErrUnknown) {
		t.Fatalf("the proposal: %+v", p)
	}
}

// Every storage call of a leader and a follower fails in turn: the node reports
// it, nothing panics, and what was acknowledged is still there.
func TestNthStoreOperationFails(t *testing.T) {
	last := 24
	if testing.Short() {
		last = 6
	}
	for nth := 1; nth <= last; nth += 3 {
		for _, after := range []bool{false, true} {
			c, hooks := faultyCluster(t)
			first := c.grant("a")
			tn := c.nodes[nth%3]
			var calls atomic.Int64
			hooks[tn].arm(func(op string, _ uint64, isAfter bool) error {
				if isAfter == after && calls.Add(1) == int64(nth) {
					return errors.New("fault")
				}
				return nil
			})
			failed := false
			for i := 0; i < 60 && !failed; i++ {
				if lead := c.leader(); lead != nil {
					term, _ := lead.f.current()
					lead.propose(term.epoch, term.base, grantOp(fmt.Sprint("k", i)))
				}
				failed = tn.n.hasFailed()
				if failed {
					break
				}
			}
			if !failed {
				t.Fatalf("operation %d was never reached", nth)
			}
			tn.kill()
			tn.opt.hook = nil
			tn.start()
			if got := c.grant("z"); got <= first {
				t.Fatalf("token %d after %d", got, first)
			}
			for _, x := range c.nodes {
				eventually(t, "the first grant on every node", func() bool { _, ok := x.n.Table().Lookup("a"); return ok })
				x.kill()
			}
		}
	}
}
