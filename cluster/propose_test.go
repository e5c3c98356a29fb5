package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
)

// A leader that has lost its followers cannot know what becomes of an entry.
func TestProposeWithoutQuorumIsUnknown(t *testing.T) {
	c := newCluster(t, 3).start()
	c.grant("a")
	lead := c.leader()
	term, _ := lead.f.current()
	for _, tn := range c.nodes {
		if tn != lead {
			tn.kill()
		}
	}
	p := lead.propose(term.epoch, term.base, grantOp("b"))
	switch {
	case errors.Is(p.err, fsm.ErrUnknown):
	case errors.Is(p.err, fsm.ErrNotExecuted): // it had stepped down before
		t.Log("the lease ran out first")
	default:
		t.Fatalf("%+v", p)
	}
	eventually(t, "the leader to step down", func() bool { _, ok := lead.f.current(); return !ok })
	if p := lead.propose(term.epoch, term.base, grantOp("c")); !errors.Is(p.err, fsm.ErrNotExecuted) {
		t.Fatalf("%+v", p)
	}
	if lead.n.Ready() == nil {
		t.Fatal("ready without a quorum")
	}
	if err := lead.n.Liveness(); err != nil {
		t.Fatalf("liveness depends on the quorum: %v", err)
	}
	if lead.n.LeaderClientAddr() != "" {
		t.Fatal("redirects to itself")
	}
}

// While raft's main loop stands still, the deadline answers, and only once.
func TestProposeDeadline(t *testing.T) {
	c := newCluster(t, 1)
	tn := c.nodes[0]
	a := &armed{}
	tn.opt.hook = a.call
	tn.cfg.ProposeTimeout = 200 * time.Millisecond
	c.start()
	lead := c.leader()
	term, _ := lead.f.current()
	release := make(chan struct{})
	a.arm(func(op string, _ uint64, after bool) error {
		if op == "append to the log" && !after {
			<-release
		}
		return nil
	})
	var calls atomic.Int32
	entry, err := fsm.AppendEntry(nil, &fsm.Entry{Epoch: term.epoch, Stamp: term.base, Ops: []fsm.Op{grantOp("b")}})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 2)
	start := time.Now()
	tn.n.Propose(entry, func(_ fsm.Result, err error) { calls.Add(1); got <- err })
	if took := time.Since(start); took > 150*time.Millisecond {
		t.Errorf("Propose blocked for %v", took)
	}
	if err := <-got; !errors.Is(err, fsm.ErrUnknown) {
		t.Fatal(err)
	}
	close(release)
	eventually(t, "the late entry to be applied", func() bool { _, ok := tn.n.Table().Lookup("b"); return ok })
	if calls.Load() != 1 {
		t.Fatalf("answered %d times", calls.Load())
	}
}

// Proposals that race a transfer are executed, or known not to be; a
// definite "not executed" is never found in the table.
func TestProposeDuringTransfer(t *testing.T) {
	c := newCluster(t, 3).start()
	lead := c.leader()
	term, _ := lead.f.current()
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		done <- lead.n.TransferLeadership(ctx)
	}()
	outcome := map[string]proposal{}
	for i := range 2000 {
		key := string(rune('a'+i%26)) + time.Duration(i).String()
		p := lead.propose(term.epoch, term.base, grantOp(key))
		outcome[key] = p
		if _, ok := lead.f.current(); !ok {
			break
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	next := c.leader()
	executed := 0
	for key, p := range outcome {
		_, in := next.n.Table().Lookup(key)
		switch {
		case p.err == nil && !p.res.Stale:
			executed++
			if !in {
				t.Errorf("%s was acknowledged and is lost", key)
			}
		case p.err == nil || errors.Is(p.err, fsm.ErrNotExecuted):
			if in {
				t.Errorf("%s: %v, and yet executed", key, p.err)
			}
		}
	}
	t.Logf("%d proposals, %d executed", len(outcome), executed)
}
