package cluster

import (
	"strings"
	"testing"
)

func TestSingleNodeFormsAtOnce(t *testing.T) {
	c := newCluster(t, 1).start()
	c.grant("a")
	if err := c.nodes[0].n.Ready(); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes[0].n.Liveness(); err != nil {
		t.Fatal(err)
	}
}

func TestFormsInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		c := newCluster(t, 3)
		for i, at := range order {
			tn := c.nodes[at].start()
			if i < 2 {
				eventually(t, "the node says whom it waits for", func() bool { return strings.Contains(tn.n.Status().Waiting, "n") })
				if s := tn.n.Status(); s.Role != RoleForming || len(s.Members) != 0 {
					t.Fatalf("formed with %d of 3 nodes: %+v", i+1, s)
				}
				if tn.n.Ready() == nil {
					t.Fatal("ready before the cluster is formed")
				}
			}
		}
		c.leader()
		c.voters(c.nodes...)
		id := ""
		for _, tn := range c.nodes {
			eventually(t, "ready", func() bool { return tn.n.Ready() == nil })
			eventually(t, "the cluster id to be known", func() bool { return tn.n.Status().ClusterID != "" })
			s := tn.n.Status()
			if id == "" {
				id = s.ClusterID
			}
			if s.ClusterID != id {
				t.Fatalf("cluster ids differ: %s %s", id, s.ClusterID)
			}
		}
		for _, tn := range c.nodes {
			tn.kill()
		}
	}
}

func TestRestartAll(t *testing.T) {
	c := newCluster(t, 3).start()
	before := c.grant("a")
	var incs []string
	for _, tn := range c.nodes {
		eventually(t, "cluster id known", func() bool { return tn.n.Status().ClusterID != "" })
		incs = append(incs, tn.n.Status().Incarnation)
	}
	for _, tn := range c.nodes {
		tn.kill()
	}
	for i := range c.nodes {
		c.nodes[2-i].start()
	}
	if after := c.grant("b"); after <= before {
		t.Fatalf("token %d after %d", after, before)
	}
	for i, tn := range c.nodes {
		eventually(t, "the old grant on every node", func() bool { _, ok := tn.n.Table().Lookup("a"); return ok })
		if got := tn.n.Status().Incarnation; got != incs[i] {
			t.Fatalf("incarnation changed: %s %s", incs[i], got)
		}
	}
	c.voters(c.nodes...)
}

func TestDifferentPeerListsDoNotForm(t *testing.T) {
	c := newCluster(t, 3)
	c.nodes[1].cfg.Peers = append([]Peer{{ID: "n0", Addr: "127.0.0.1:1"}}, c.nodes[1].cfg.Peers...)
	c.start()
	eventually(t, "the founder complains about the list", func() bool { return strings.Contains(c.nodes[0].n.Status().Waiting, "same peer list") })
	if s := c.nodes[0].n.Status(); len(s.Members) != 0 {
		t.Fatalf("formed: %+v", s)
	}
}

func TestNamesAsAddresses(t *testing.T) {
	c := newCluster(t, 3)
	for _, tn := range c.nodes {
		peers := make([]Peer, len(tn.cfg.Peers))
		for i, p := range tn.cfg.Peers {
			peers[i] = Peer{ID: p.ID, Addr: strings.Replace(p.Addr, "127.0.0.1", "localhost", 1)}
		}
		tn.cfg.Peers = peers
	}
	c.start()
	c.grant("a")
	for _, m := range c.nodes[0].n.Status().Members {
		if !strings.HasPrefix(m.PeerAddr, "localhost:") {
			t.Fatalf("member address %s", m.PeerAddr)
		}
	}
}
