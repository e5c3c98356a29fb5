package clustertest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cluster/admin"
)

// Cluster is a set of nodes that are given the same list of peers.
type Cluster struct {
	Name  string
	Nodes []*Node
	Flags []string // given to every node

	t testing.TB
}

// New prepares a cluster of nodes n1, n2, ... without starting any. At the end of
// the test every process is gone, and if the test failed its log is shown.
func New(t testing.TB, size int, flags ...string) *Cluster {
	t.Helper()
	c := &Cluster{Name: "test", Flags: flags, t: t}
	dir := t.TempDir()
	for i := range size {
		id := fmt.Sprintf("n%d", i+1)
		c.Nodes = append(c.Nodes, &Node{ID: id, Dir: filepath.Join(dir, id), t: t, c: c, log: &Log{}})
	}
	closeAll(c.assignPorts())
	t.Cleanup(c.finish)
	return c
}

// Start makes a cluster, starts all its nodes and waits until all are ready.
func Start(t testing.TB, size int, flags ...string) *Cluster {
	t.Helper()
	c := New(t, size, flags...)
	c.Start()
	c.WaitReady()
	return c
}

// assignPorts gives every node three free ports, and returns what holds them.
func (c *Cluster) assignPorts() []net.Listener {
	c.t.Helper()
	held, err := reserve(3 * len(c.Nodes))
	if err != nil {
		c.t.Fatal(err)
	}
	for i, n := range c.Nodes {
		n.Client, n.Peer, n.Admin = held[3*i].Addr().String(), held[3*i+1].Addr().String(), held[3*i+2].Addr().String()
	}
	return held
}

// Start starts all nodes of a cluster that was never started. Where somebody took
// one of its ports it begins again with others.
func (c *Cluster) Start() {
	c.t.Helper()
	Binary(c.t) // may take a while: not while ports are to be kept free
	for range 5 {
		closeAll(c.assignPorts())
		err := c.startAll()
		if err == nil {
			return
		}
		if !errors.Is(err, errPortTaken) {
			c.t.Fatal(err)
		}
		for _, n := range c.Nodes {
			if n.running {
				n.Kill()
				n.WipeDisk()
			}
		}
	}
	c.t.Fatal("some port was taken each time")
}

func (c *Cluster) startAll() error {
	for _, n := range c.Nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) peers() string {
	var list []string
	for _, n := range c.Nodes {
		list = append(list, n.ID+"="+n.Peer)
	}
	return strings.Join(list, ",")
}

// For returns the same cluster for a subtest to talk to: what goes wrong is then
// the subtest's failure. Nodes are started and ended by the cluster itself only.
func (c *Cluster) For(t testing.TB) *Cluster {
	view := *c
	view.t, view.Nodes = t, nil
	for _, n := range c.Nodes {
		node := *n
		node.t, node.c = t, &view
		view.Nodes = append(view.Nodes, &node)
	}
	return &view
}

// finish ends what still runs, and shows the logs of a test that failed.
func (c *Cluster) finish() {
	for _, n := range c.Nodes {
		if n.running {
			n.proc.Kill()
			n.ended()
		}
	}
	if !c.t.Failed() {
		return
	}
	var text Log
	for _, n := range c.Nodes {
		dump(&text, n.ID, n.log)
	}
	_, _ = io.WriteString(c.t.Output(), text.String())
}

// Endpoints are the client addresses of all nodes, as the CLI takes them.
func (c *Cluster) Endpoints() string {
	var list []string
	for _, n := range c.Nodes {
		list = append(list, n.Client)
	}
	return strings.Join(list, ",")
}

// CLI starts a holdfast command against this cluster.
func (c *Cluster) CLI(args ...string) *Process {
	c.t.Helper()
	return StartProcess(c.t, []string{"HOLDFAST_ENDPOINTS=" + c.Endpoints()}, Binary(c.t), args...)
}

// Leader returns the node that leads now, in the newest term that any node
// claims; nil if there is none.
func (c *Cluster) Leader() *Node {
	var leader *Node
	var term uint64
	for _, n := range c.Nodes {
		if !n.Running() {
			continue
		}
		if s, err := n.Status(); err == nil && s.Role == "leader" && s.Term > term {
			leader, term = n, s.Term
		}
	}
	return leader
}

// WaitLeader waits for a leader among the nodes that run.
func (c *Cluster) WaitLeader() (leader *Node) {
	c.t.Helper()
	Eventually(c.t, func() error {
		if leader = c.Leader(); leader == nil {
			return errors.New("nobody leads")
		}
		return nil
	})
	return leader
}

// WaitReady waits until every node that runs is ready and all of them name the
// same leader, to whose client address they would send a client.
func (c *Cluster) WaitReady() (leader *Node) {
	c.t.Helper()
	Eventually(c.t, func() error {
		leader = c.Leader()
		if leader == nil {
			return errors.New("nobody leads")
		}
		for _, n := range c.Nodes {
			if !n.Running() {
				continue
			}
			s, err := n.Status()
			switch {
			case err != nil:
				return err
			case !s.Ready:
				return fmt.Errorf("%s is not ready: %s", n.ID, s.NotReady)
			case s.Leader.ClientAddr != leader.Client:
				return fmt.Errorf("%s names %q as its leader, not %s", n.ID, s.Leader.ClientAddr, leader.ID)
			}
		}
		return nil
	})
	return leader
}

// WaitApplied waits until the node has applied all that the leader has.
func (c *Cluster) WaitApplied(n *Node) {
	c.t.Helper()
	Eventually(c.t, func() error {
		leader := c.Leader()
		if leader == nil {
			return errors.New("nobody leads")
		}
		want, err := leader.Status()
		if err != nil {
			return err
		}
		got, err := n.Status()
		if err == nil && got.AppliedIndex < want.AppliedIndex {
			err = fmt.Errorf("%s has applied %d of %d entries", n.ID, got.AppliedIndex, want.AppliedIndex)
		}
		return err
	})
}

// WaitVoters waits until the leader's configuration has exactly these voters, as
// "n1 n2 n3".
func (c *Cluster) WaitVoters(want string) {
	c.t.Helper()
	Eventually(c.t, func() error {
		leader := c.Leader()
		if leader == nil {
			return errors.New("nobody leads")
		}
		s, err := leader.Status()
		if got := voters(s); err == nil && got != want {
			err = fmt.Errorf("the voters are %s, not %s", got, want)
		}
		return err
	})
}

// Others are the nodes besides the given one.
func (c *Cluster) Others(not *Node) (others []*Node) {
	for _, n := range c.Nodes {
		if n != not {
			others = append(others, n)
		}
	}
	return others
}

// status is Status for where a node must answer.
func (n *Node) status() admin.Status {
	n.t.Helper()
	s, err := n.Status()
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}
