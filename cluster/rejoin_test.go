package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func (c *testCluster) follower() *testNode {
	c.t.Helper()
	lead := c.leader()
	for _, tn := range c.nodes {
		if tn != lead {
			return tn
		}
	}
	return nil
}

func TestWipedNodeRejoinsUnderANewIdentity(t *testing.T) {
	c := newCluster(t, 3).start()
	c.grant("a")
	for i, tn := range []*testNode{c.follower(), c.leader()} {
		key := fmt.Sprint("b", i)
		was := tn.n.id.self
		tn.kill()
		c.leader()
		c.grant(key)
		tn.wipe()
		tn.start()
		if tn.n.id.self == was || tn.n.id.self.node != was.node {
			t.Fatalf("identity %s after %s", tn.n.id.self, was)
		}
		c.voters(c.nodes...)
		eventually(t, "caught up", func() bool {
			_, a := tn.n.Table().Lookup("a")
			_, b := tn.n.Table().Lookup(key)
			return a && b && tn.n.Ready() == nil
		})
	}
	c.grant("c")
}

// A vote asked of the old identity is not given by the new one: the connection
// itself is refused.
func TestWipedNodeNeverVotesUnderItsOldIdentity(t *testing.T) {
	c := newCluster(t, 3).start()
	c.grant("a")
	lead, victim := c.leader(), c.follower()
	oldName := victim.n.id.self
	victim.kill()
	victim.wipe()
	// Without the third node there is no quorum that could take the new identity in.
	for _, tn := range c.nodes {
		if tn != lead && tn != victim {
			tn.kill()
		}
	}
	victim.start()
	_, err := lead.n.stream.Dial(oldName.at(victim.n.addr), time.Second)
	if err == nil || !strings.Contains(err.Error(), oldName.String()) {
		t.Fatalf("dialling the old identity: %v", err)
	}
	var resp raft.RequestVoteResponse
	req := &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(lead.n.id.self.id()), Addr: []byte(lead.n.stream.addr)}, Term: 99, LastLogIndex: 1 << 40, LastLogTerm: 98}
	if err := lead.n.trans.RequestVote(oldName.id(), oldName.at(victim.n.addr), req, &resp); err == nil || resp.Granted {
		t.Fatalf("the old identity voted: %v %+v", err, resp)
	}
	if victim.n.raft.Load().CurrentTerm() != 0 {
		t.Fatal("a raft message reached the wiped node")
	}
	eventually(t, "the wiped node says what it waits for", func() bool { return strings.Contains(victim.n.Status().Waiting, "leader") })
}

func TestTwoWipedNodesDoNotFormANewCluster(t *testing.T) {
	c := newCluster(t, 3).start()
	c.grant("a")
	keeper := c.nodes[2] // the wiped ones are the founder and another
	for _, tn := range c.nodes {
		tn.kill()
	}
	c.nodes[0].wipe()
	c.nodes[1].wipe()
	c.nodes[0].start()
	c.nodes[1].start()
	eventually(t, "the founder waits for the third", func() bool { return strings.Contains(c.nodes[0].n.Status().Waiting, "n3") })
	keeper.start()
	eventually(t, "the founder has seen the state", func() bool {
		return strings.Contains(c.nodes[0].n.Status().Waiting, "have a leader")
	})
	for range 3 {
		for _, tn := range c.nodes[:2] {
			tn.n.seek(context.Background(), false)
			if s := tn.n.Status(); s.Term != 0 || len(s.Members) != 0 {
				t.Fatalf("%s formed a cluster: %+v", tn.cfg.NodeID, s)
			}
		}
	}
	if _, ok := keeper.f.current(); ok {
		t.Fatal("the survivor leads without a quorum")
	}
}

// A member that is alive is not replaced, whoever asks.
func TestLiveIdentityIsNotRemoved(t *testing.T) {
	c := newCluster(t, 3).start()
	c.grant("a")
	lead, live := c.leader(), c.follower()
	imposter := live.cfg
	imposter.DataDir = t.TempDir()
	imposter.Peers = append([]Peer(nil), live.cfg.Peers...)
	for i := range imposter.Peers {
		if imposter.Peers[i].ID == live.cfg.NodeID {
			other := newCluster(t, 1).nodes[0].cfg.PeerAddr
			imposter.Peers[i].Addr, imposter.PeerAddr = other, other
		}
	}
	im := &testNode{t: t, cfg: imposter, lines: live.lines}
	im.start()
	defer im.kill()
	eventually(t, "the imposter is told why not", func() bool {
		return strings.Contains(im.n.Status().Waiting, "not known to be gone")
	})
	if _, ok := lead.f.current(); !ok {
		t.Fatal("leadership moved")
	}
	c.voters(c.nodes...)
}

// An old data directory that comes back after it was replaced does no harm and
// says what is to be done.
func TestReplacedGhostStaysOut(t *testing.T) {
	c := newCluster(t, 3).start()
	c.grant("a")
	victim := c.follower()
	victim.kill()
	oldDir := victim.cfg.DataDir
	victim.cfg.DataDir = t.TempDir()
	victim.start()
	c.voters(c.nodes...)
	victim.kill()
	victim.cfg.DataDir = oldDir
	victim.start()
	lead := c.leaderOfRest(victim)
	term := lead.n.raft.Load().CurrentTerm()
	eventually(t, "the ghost knows that it was replaced", func() bool {
		w := victim.n.Status().Waiting
		return strings.Contains(w, "replaced this server")
	})
	if now := lead.n.raft.Load().CurrentTerm(); now != term {
		t.Fatalf("the ghost disturbed the cluster: term %d after %d", now, term)
	}
}

func (c *testCluster) leaderOfRest(out *testNode) *testNode {
	c.t.Helper()
	var found *testNode
	eventually(c.t, "a leader among the rest", func() bool {
		for _, tn := range c.running() {
			if _, ok := tn.f.current(); ok && tn != out {
				found = tn
				return true
			}
		}
		return false
	})
	return found
}

// A node that moved to another address is taken over there.
func TestNewAddressIsTakenOver(t *testing.T) {
	c := newCluster(t, 3).start()
	c.grant("a")
	mover := c.follower()
	was := mover.n.id.self
	mover.kill()
	addr := newCluster(t, 1).nodes[0].cfg.PeerAddr
	peers := append([]Peer(nil), mover.cfg.Peers...)
	for i := range peers {
		if peers[i].ID == mover.cfg.NodeID {
			peers[i].Addr = addr
		}
	}
	mover.cfg.Peers, mover.cfg.PeerAddr = peers, addr
	mover.start()
	eventually(t, "the new address in the leader's configuration", func() bool {
		for _, m := range c.leaderOfRest(mover).n.Status().Members {
			if m.NodeID == was.node && m.PeerAddr == addr && m.Voter {
				return true
			}
		}
		return false
	})
	eventually(t, "it follows", func() bool { return mover.n.Ready() == nil })
}
