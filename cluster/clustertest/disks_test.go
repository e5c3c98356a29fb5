package clustertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// TestWipedNode: a node that lost its disk comes back as a member that counts, and
// nothing that was granted is lost by it.
func TestWipedNode(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	leader := c.Leader()
	token := leader.Dial().Lock("job", 200)
	wiped, healthy := c.Others(leader)[0], c.Others(leader)[1]
	before := wiped.status().Incarnation
	wiped.Kill()
	wiped.WipeDisk()
	wiped.Start()
	Eventually(t, func() error {
		s, err := wiped.Status()
		switch {
		case err != nil:
			return err
		case !s.Ready || s.Role != "follower":
			return fmt.Errorf("the wiped node is %s: %s", s.Role, s.NotReady)
		case s.Incarnation == before:
			return errors.New("the wiped node has its old identity")
		}
		return nil
	})
	c.WaitVoters("n1 n2 n3")
	c.WaitApplied(wiped)

	// It counts: with the wiped node and one other there is a majority, and the lock.
	healthy.Kill()
	if op := c.WaitReady().Dial().Keep("job", token, 200); op != wire.OpKept {
		t.Fatalf("keep with the wiped node in the majority: %c", op)
	}
}

// TestTwoWipedNodes: two nodes without a disk form no new cluster over the third,
// be it down or up, and what it knows stays.
func TestTwoWipedNodes(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	third := c.Nodes[2]
	c.Leader().Dial().Lock("job", 200)
	for _, n := range c.Nodes {
		c.WaitApplied(n)
	}
	before := third.status()
	for _, n := range c.Nodes {
		n.Kill()
	}
	for _, n := range c.Nodes[:2] {
		n.WipeDisk()
		n.Start()
	}
	refusesToForm(t, c, c.Nodes[:2], 3*time.Second)
	third.Start()
	refusesToForm(t, c, c.Nodes, 3*time.Second)
	// Without a majority it cannot know what was committed, so it shows no locks; but
	// its log is as long as it was.
	if now := third.status(); now.LastIndex < before.LastIndex || now.ClusterID != before.ClusterID || len(now.Members) != 3 {
		t.Fatalf("the node that kept its disk was %+v and is %+v", before, now)
	}
	code, body, err := c.Nodes[0].Get("/readyz?verbose")
	if err != nil || code != 503 || !strings.Contains(body, "waiting for") {
		t.Fatalf("readyz of a wiped node: %d %q %v; it must say what it waits for", code, body, err)
	}
}

// refusesToForm looks for a while: nobody may lead, or answer a client with
// anything but Moved.
func refusesToForm(t *testing.T, c *Cluster, nodes []*Node, watch time.Duration) {
	t.Helper()
	for end := time.Now().Add(watch); time.Now().Before(end); {
		if leader := c.Leader(); leader != nil {
			t.Fatalf("%s leads", leader.ID)
		}
		for _, n := range nodes {
			conn := n.Dial()
			if r := conn.Ask(wire.Request{Op: wire.OpAcquire, Lease: 1, Text: []byte("job")}); r.Op != wire.OpMoved {
				t.Fatalf("%s answers %v", n.ID, r)
			}
			_ = conn.Close()
		}
		At(time.Now().Add(100 * time.Millisecond))
	}
}

// refuses starts a node that must end by itself, with a non-zero code and one line
// that says what is wrong.
func refuses(t *testing.T, n *Node, says ...string) {
	t.Helper()
	proc := n.TryStart()
	code := proc.Wait(Patience)
	checkClean(t, n.ID, proc.Err)
	var last []string
	for line := range strings.Lines(proc.Err.String()) {
		if strings.HasPrefix(line, "holdfast: ") {
			last = append(last, line)
		}
	}
	if code == 0 || code == 66 || code > 128 || len(last) != 1 {
		t.Fatalf("code %d with %d lines of error, want one:\n%s", code, len(last), proc.Err)
	}
	for _, text := range says {
		if !strings.Contains(last[0], text) {
			t.Fatalf("%q does not speak of %q", last[0], text)
		}
	}
}

// TestDirectoryRefused: a data directory that is not this node's to use.
func TestDirectoryRefused(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	node := c.Nodes[0]
	token := node.Dial().Lock("job", 200)

	second := New(t, 1).Nodes[0]
	second.Dir = node.Dir
	refuses(t, second, node.Dir, "use") // the first one runs
	if s := node.Dial().Query("job"); s.Token != token {
		t.Fatalf("beside the refused node the lock says %+v", s)
	}
	node.Stop()

	foreign := New(t, 1)
	foreign.Name = "other"
	foreign.Nodes[0].Dir = node.Dir
	refuses(t, foreign.Nodes[0], "cluster test", "other")
	renamed := New(t, 2).Nodes[1]
	renamed.Dir = node.Dir
	refuses(t, renamed, "node n1", "n2")

	node.Start()
	c.WaitReady()
	if s := node.Dial().Query("job"); s.Token != token {
		t.Fatalf("after all refusals the lock says %+v, want token %d", s, token)
	}
}

// TestDamagedStore: damage is reported in one line that names the file.
func TestDamagedStore(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	node := c.Nodes[0]
	conn := node.Dial()
	for i := range 50 {
		conn.Lock(fmt.Sprintf("job%d", i), 200)
	}
	node.Kill()
	path := filepath.Join(node.Dir, "raft.db")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	zero := func(b []byte) { clear(b) }
	noise := func(b []byte) {
		for i := range b {
			b[i] = byte(i*7 + 1)
		}
	}
	for name, damage := range map[string]func(b []byte) []byte{
		"empty":         func([]byte) []byte { return nil },
		"cut to a page": func(b []byte) []byte { return b[:page] },
		"cut in half":   func(b []byte) []byte { return b[:3*page] },
		"meta zeroed":   func(b []byte) []byte { zero(b[:2*page]); return b },
		"pages zeroed":  func(b []byte) []byte { zero(b[2*page : 12*page]); return b },
		"pages noise":   func(b []byte) []byte { noise(b[2*page : 12*page]); return b },
		"no bolt file":  func([]byte) []byte { return []byte("this is not a database\n") },
	} {
		if err := os.WriteFile(path, damage(append([]byte(nil), good...)), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { refuses(t, node, "raft.db") })
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	node.Start()
	c.WaitReady()
	if n := len(node.Locks("").Locks); n != 50 {
		t.Fatalf("with the good file again %d locks are held, want 50", n)
	}
}

// TestForeignPeer: a node that is pointed at another cluster is turned away, by
// name and by id, and both sides say so.
func TestForeignPeer(t *testing.T) {
	t.Parallel()
	home := Start(t, 3)
	leader := home.Leader()
	token := leader.Dial().Lock("job", 200)
	victim := home.Others(leader)[0]
	incarnation := victim.status().Incarnation
	victim.Kill()

	// The same list of peers and node id, with an empty disk, in a cluster of
	// another name.
	stray := New(t, 3)
	stray.Name = "elsewhere"
	for i, n := range home.Nodes {
		stray.Nodes[i].Client, stray.Nodes[i].Peer, stray.Nodes[i].Admin = n.Client, n.Peer, n.Admin
	}
	var node *Node
	for i, n := range home.Nodes {
		if n == victim {
			node = stray.Nodes[i]
		}
	}
	node.Start()
	Eventually(t, func() error {
		_, body, err := node.Get("/readyz?verbose")
		if err == nil && !strings.Contains(body, "cluster test") {
			err = fmt.Errorf("the stray node does not say why it waits: %s", body)
		}
		return err
	})
	Eventually(t, func() error {
		if log := leader.Log(); !strings.Contains(log, "elsewhere") {
			return errors.New("the leader does not log whom it turned away")
		}
		return nil
	})
	if s := node.status(); s.Role != "forming" || len(s.Members) != 0 {
		t.Fatalf("the stray node is %s with %v", s.Role, s.Members)
	}
	if s := leader.Dial().Query("job"); s.Token != token {
		t.Fatalf("beside the stray node the lock says %+v", s)
	}
	node.Kill()
	victim.Start()
	home.WaitReady()
	home.WaitVoters("n1 n2 n3")
	if got := victim.status().Incarnation; got != incarnation {
		t.Fatalf("the true node has incarnation %s, had %s: it was replaced", got, incarnation)
	}
}
