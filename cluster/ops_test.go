package cluster

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
)

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
