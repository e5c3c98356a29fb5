package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
)

func TestKilledLeaderIsReplaced(t *testing.T) {
	c := newCluster(t, 3).start()
	old := c.leader()
	first := c.grant("a")
	killed := time.Now()
	old.kill()
	next := c.leader()
	t.Logf("fail-over took %v", time.Since(killed))
	if next == old {
		t.Fatal("the dead node leads")
	}
	if second := c.grant("b"); second <= first {
		t.Fatalf("token %d after %d", second, first)
	}
	old.start()
	eventually(t, "the old leader catches up", func() bool {
		_, a := old.n.Table().Lookup("a")
		_, b := old.n.Table().Lookup("b")
		return a && b
	})
	c.voters(c.nodes...)
}

// The cluster clock goes on from what was committed and never ahead of it:
// three fail-overs in turn, each with a base no later than the last stamp.
func TestClockIsNeverFastAcrossFailover(t *testing.T) {
	c := newCluster(t, 3).start()
	var stamp time.Duration
	for range 3 {
		tn := c.leader()
		if term, _ := tn.f.current(); term.base > stamp {
			t.Fatalf("base %v is ahead of the last stamp %v", term.base, stamp)
		}
		stamp += 7 * time.Second
		tn = c.tick(stamp)
		tn.kill()
		next := c.leader()
		if got, ok := next.f.current(); ok && got.base != stamp {
			t.Fatalf("base %v after a committed stamp of %v", got.base, stamp)
		}
		tn.start()
		c.leader()
	}
}

// tick commits a stamp through whoever leads and returns that node.
func (c *testCluster) tick(stamp time.Duration) *testNode {
	c.t.Helper()
	for range 20 { // a loaded machine may change its leader in between
		tn := c.leader()
		term, ok := tn.f.current()
		if !ok {
			continue
		}
		p := tn.propose(term.epoch, stamp, fsm.Op{Kind: fsm.KindTick})
		if p.err == nil && !p.res.Stale {
			if p.res.Clock != stamp {
				c.t.Fatalf("clock %v after a stamp of %v", p.res.Clock, stamp)
			}
			return tn
		}
		c.t.Logf("tick: %+v", p)
	}
	c.t.Fatal("no tick went through")
	return nil
}

func TestStaleEpochIsNotExecuted(t *testing.T) {
	c := newCluster(t, 3).start()
	c.grant("a")
	old := c.leader()
	term, _ := old.f.current()
	if err := old.n.TransferLeadership(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := c.leader()
	if next == old {
		t.Fatal("leadership was not transferred")
	}
	p := next.propose(term.epoch, term.base, grantOp("b"))
	if p.err != nil || !p.res.Stale || len(p.res.Outcomes) != 0 {
		t.Fatalf("an entry of the old epoch: %+v", p)
	}
	if _, ok := next.n.Table().Lookup("b"); ok {
		t.Fatal("executed")
	}
	if p := old.propose(term.epoch, term.base, grantOp("c")); !errors.Is(p.err, fsm.ErrNotExecuted) {
		t.Fatalf("a proposal on a follower: %+v", p)
	}
}

func TestShutdownHandsOver(t *testing.T) {
	c := newCluster(t, 3).start()
	c.grant("a")
	old := c.leader()
	var rest []*testNode
	for _, tn := range c.nodes {
		if tn != old {
			rest = append(rest, tn)
		}
	}
	old.shutdown()
	// The transfer has happened within Shutdown: no election timeout is waited for.
	if rest[0].n.LeaderClientAddr() == "" && rest[1].n.LeaderClientAddr() == "" {
		t.Error("no leader right after the shutdown")
	}
	c.leader()
	c.grant("b")
}

func TestResign(t *testing.T) {
	c := newCluster(t, 3).start()
	old := c.leader()
	old.n.Resign("test")
	eventually(t, "another leader", func() bool { return c.leader() != old })

	single := newCluster(t, 1).start()
	tn := single.leader()
	before, _ := tn.f.current()
	tn.n.Resign("test")
	eventually(t, "a new term of the only node", func() bool {
		now, ok := tn.f.current()
		return ok && now.epoch > before.epoch
	})
}

// A resignation that comes while another is under way is not forgotten: the
// node may have lost and regained leadership since that one began.
func TestResignDuringAnother(t *testing.T) {
	c := newCluster(t, 3).start()
	old := c.leader()
	old.n.resigning.Store(true)
	old.n.Resign("test")
	if !old.n.resignAgain.Load() {
		t.Fatal("the second resignation left no trace")
	}
	old.n.resigning.Store(false)
	old.n.Resign("test")
	eventually(t, "another leader", func() bool { return c.leader() != old })
	eventually(t, "the second resignation to be done with", func() bool {
		return !old.n.resigning.Load() && !old.n.resignAgain.Load()
	})
}

// Falling silent is what is left when no transfer works.
func TestMuteLosesLeadership(t *testing.T) {
	c := newCluster(t, 3).start()
	old := c.leader()
	old.n.stream.mute(2 * time.Second)
	eventually(t, "another leader", func() bool {
		for _, tn := range c.nodes {
			if _, ok := tn.f.current(); ok && tn != old {
				return true
			}
		}
		return false
	})
	c.leader()
}

func TestTokensRiseInARebuiltCluster(t *testing.T) {
	c := newCluster(t, 1).start()
	first := c.grant("a")
	floor := tokenFloor(time.Now().Add(-time.Minute))
	if first <= floor {
		t.Fatalf("token %d is not above the floor %d", first, floor)
	}
	c.nodes[0].kill()
	c.nodes[0].wipe()
	c.nodes[0].start()
	if again := c.grant("a"); again <= first {
		t.Fatalf("rebuilt cluster grants %d after %d", again, first)
	}
}

func TestTokenFloor(t *testing.T) {
	if f := tokenFloor(time.Date(2025, 12, 31, 23, 59, 59, 0, time.UTC)); f != 0 {
		t.Errorf("floor %d of an absurd clock", f)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if f, want := tokenFloor(at), uint64(731*86400)<<22; f != want {
		t.Errorf("floor %d, want %d", f, want)
	}
	last := uint64(0)
	for ms := range 2000 {
		f := tokenFloor(at.Add(time.Duration(ms) * time.Millisecond))
		if f <= last {
			t.Fatalf("floor %d after %d, %d ms into the year", f, last, ms)
		}
		last = f
	}
	if f := tokenFloor(time.Date(2080, 1, 1, 0, 0, 0, 0, time.UTC)); f >= 1<<53 {
		t.Errorf("floor %d is not exact in JSON", f)
	}
}
