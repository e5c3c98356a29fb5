package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
)

// leader waits for one running node to lead and the other running ones to
// follow it, and returns it.
func (c *testCluster) leader() *testNode {
	c.t.Helper()
	var found *testNode
	eventually(c.t, "one leader that all follow", func() bool {
		found = nil
		for _, tn := range c.running() {
			if _, ok := tn.f.current(); ok {
				if found != nil {
					return false
				}
				found = tn
			}
		}
		if found == nil {
			return false
		}
		for _, tn := range c.running() {
			if tn.n.LeaderClientAddr() != found.cfg.AdvertiseClientAddr {
				return false
			}
		}
		return true
	})
	return found
}

// voters waits until every running node sees exactly want voters and nothing else.
func (c *testCluster) voters(want ...*testNode) {
	c.t.Helper()
	var ids []string
	for _, tn := range want {
		ids = append(ids, tn.n.id.self.String())
	}
	slices.Sort(ids)
	eventually(c.t, "voters "+strings.Join(ids, " "), func() bool {
		for _, tn := range c.running() {
			var got []string
			for _, m := range tn.n.Status().Members {
				if !m.Voter {
					return false
				}
				got = append(got, m.NodeID+"."+m.Incarnation)
			}
			slices.Sort(got)
			if !slices.Equal(got, ids) {
				return false
			}
		}
		return true
	})
}

type proposal struct {
	res fsm.Result
	err error
}

// propose sends ops stamped with stamp in the node's current term.
func (tn *testNode) propose(epoch uint64, stamp time.Duration, ops ...fsm.Op) proposal {
	tn.t.Helper()
	entry, err := fsm.AppendEntry(nil, &fsm.Entry{Epoch: epoch, Stamp: stamp, Ops: ops})
	if err != nil {
		tn.t.Fatal(err)
	}
	ch := make(chan proposal, 1)
	tn.n.Propose(entry, func(res fsm.Result, err error) { ch <- proposal{res, err} })
	return <-ch
}

func grantOp(key string) fsm.Op {
	return fsm.Op{Kind: fsm.KindGrant, Key: key, Owner: 1, Lease: 100 * time.Second}
}

// grant commits a grant through the current leader and returns its token.
func (c *testCluster) grant(key string) uint64 {
	c.t.Helper()
	for range 20 {
		tn := c.leader()
		term, ok := tn.f.current()
		if !ok {
			continue
		}
		p := tn.propose(term.epoch, term.base, grantOp(key))
		if p.err == nil && !p.res.Stale && p.res.Outcomes[0].Code == fsm.Granted {
			return p.res.Outcomes[0].Token
		}
		c.t.Logf("grant %s: %+v", key, p)
	}
	c.t.Fatal("no grant went through")
	return 0
}

// proposeUntilFailed keeps a single node busy until its storage has failed.
func (tn *testNode) proposeUntilFailed(prefix string) {
	tn.t.Helper()
	i := 0
	eventually(tn.t, "the node to fail", func() bool {
		if term, ok := tn.f.current(); ok {
			i++
			tn.propose(term.epoch, term.base, grantOp(fmt.Sprint(prefix, "-", i)))
		}
		return tn.n.hasFailed()
	})
}
