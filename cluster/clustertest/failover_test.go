package clustertest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// TestLeaderKilled is the life of one lock through kill -9 of the leader, the
// return of the dead node and the restart of all three.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	old := c.Leader()
	holder := old.Dial()
	holder.Send(wire.Request{Op: wire.OpHello, Version: wire.Version, Owner: 1, Text: []byte("host/batch/1")})
	holder.Expect(wire.OpHelloOK, 1)
	token := holder.Lock("job", 200)
	owner := holder.Query("job").Holder
	waiter := old.Dial()
	waiter.Queue("job", 100, 200, 1)
	followersRedirect(t, c, old)

	old.Kill()
	// The waiter's fate is unknown to it: its session ends without a reply.
	waiter.Closed(replyWait)

	leader := c.WaitReady()
	conn := leader.Dial()
	if s := conn.Query("job"); s.Token != token || s.Holder != owner || s.Waiters != 0 || s.RemainingMS < 100_000 {
		t.Fatalf("after the fail-over the lock says %+v, want token %d of %d and an empty queue", s, token, owner)
	}
	if op := conn.Keep("job", token, 201); op != wire.OpKept {
		t.Fatalf("keep through the new leader: %c", op)
	}
	next := leader.Dial()
	nextOwner := next.Queue("job", 100, 202, 1)
	if op := conn.Release("job", token); op != wire.OpReleased {
		t.Fatalf("release through the new leader: %c", op)
	}
	second := next.Expect(wire.OpAcquired, nextOwner).Token
	if second <= token {
		t.Fatalf("token %d after %d", second, token)
	}

	old.Start()
	c.WaitReady()
	c.WaitApplied(old)
	list := old.Locks("")
	if len(list.Locks) != 1 || list.Locks[0].Token != fmt.Sprint(second) || !list.Stale {
		t.Fatalf("the node that came back has %+v, want token %d", list, second)
	}

	for _, n := range c.Nodes {
		n.Kill()
	}
	for _, n := range c.Nodes {
		n.Start()
	}
	conn = c.WaitReady().Dial()
	if s := conn.Query("job"); s.Token != second || s.Holder != nextOwner {
		t.Fatalf("after the restart of all nodes the lock says %+v, want token %d", s, second)
	}
	if third := conn.Lock("other", 5); third <= second {
		t.Fatalf("token %d after the restart of all nodes, %d before", third, second)
	}
	if op := conn.Release("job", second); op != wire.OpReleased {
		t.Fatalf("release after the restart of all nodes: %c", op)
	}
}

// followersRedirect expects every request to be answered by every follower with
// the leader's address, and the session then to be closed politely.
func followersRedirect(t *testing.T, c *Cluster, leader *Node) {
	t.Helper()
	for _, n := range c.Others(leader) {
		conn := n.Dial()
		key := []byte("job")
		reqs := []wire.Request{
			{Op: wire.OpAcquire, Owner: 1, Lease: 1, Text: key}, {Op: wire.OpAcquire, Owner: 2, Wait: 9, Lease: 1, Text: key},
			{Op: wire.OpRelease, Owner: 3, Token: 1, Text: key}, {Op: wire.OpKeep, Owner: 4, Token: 1, Lease: 1, Text: key},
			{Op: wire.OpQuery, Owner: 5, Text: key}, {Op: wire.OpPing, Owner: 6},
		}
		conn.Send(reqs...)
		for i := range reqs {
			if r := conn.Expect(wire.OpMoved, uint64(i+1)); r.Text != leader.Client {
				t.Fatalf("%s sends clients to %q, the leader is at %s", n.ID, r.Text, leader.Client)
			}
		}
		conn.Closed(replyWait)
	}
}

// TestLeaderStopped: a planned change of leader loses no waiter. Each is told
// where to go, and the lock is held all the while.
func TestLeaderStopped(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	old := c.Leader()
	token := old.Dial().Lock("job", 60)
	var conns []*Conn
	var owners []uint64
	for i := range 3 {
		conn := old.Dial()
		conns, owners = append(conns, conn), append(owners, conn.Queue("job", 60, 5, uint32(i+1)))
	}
	old.Stop()
	leader := c.WaitReady()
	for i, conn := range conns {
		r := conn.Expect(wire.OpMoved, owners[i])
		if r.Text != leader.Client {
			t.Fatalf("the waiter is sent to %q, the leader is at %s", r.Text, leader.Client)
		}
		moved := Dial(t, r.Text)
		conns[i], owners[i] = moved, moved.Queue("job", 60, 5, uint32(i+1))
	}
	if op := leader.Dial().Release("job", token); op != wire.OpReleased {
		t.Fatalf("release: %c", op)
	}
	for i, conn := range conns {
		r := conn.Expect(wire.OpAcquired, owners[i])
		if r.Token <= token {
			t.Fatalf("token %d after %d", r.Token, token)
		}
		token = r.Token
		conn.Release("job", token)
	}
}

// TestFailoversWithinOneLease: leases survive one change of leader after the
// other, and end in time: never early, and late only by the stated bound.
func TestFailoversWithinOneLease(t *testing.T) {
	t.Parallel()
	const lease = 15 * time.Second
	const tickInterval = 500 * time.Millisecond // the default of --tick-interval
	c := Start(t, 3)
	c.WaitReady()
	sent := time.Now()
	token := c.Leader().Dial().Lock("job", uint8(lease/time.Second))
	granted := time.Now()

	var late time.Duration // the bound on how late the lease may end
	for i := range 3 {
		old := c.WaitLeader()
		killed := time.Now()
		old.Kill()
		c.WaitReady()
		late += time.Since(killed) + tickInterval
		asked := time.Now()
		s := c.Query("job")
		rest := time.Duration(s.RemainingMS) * time.Millisecond
		switch {
		case s.Token != token:
			t.Fatalf("after fail-over %d the lock says %+v, want token %d", i+1, s, token)
		case rest < lease-time.Since(sent):
			t.Fatalf("after fail-over %d %v of the lease remain, %v after its start: it would end early", i+1, rest, time.Since(sent))
		case rest > lease-asked.Sub(granted)+late:
			t.Fatalf("after fail-over %d %v of the lease remain, %v after its start: more than %v late", i+1, rest, asked.Sub(granted), late)
		}
		old.Start()
		c.WaitReady()
		c.WaitApplied(old)
	}
	took := time.Since(sent)
	next := c.Obtain("job", 5)
	ended := time.Now()
	switch {
	case next <= token:
		t.Fatalf("token %d after %d", next, token)
	case ended.Sub(sent) < lease:
		t.Fatalf("a lease of %v ended after %v", lease, ended.Sub(sent))
	case ended.Sub(granted) > lease+late+2*time.Second: // for a loaded machine
		t.Fatalf("a lease of %v ended after %v, with a bound of %v for being late", lease, ended.Sub(granted), late)
	}
	t.Logf("the lease ended %v late over three fail-overs in %v; the bound was %v", ended.Sub(granted)-lease, took, late)
}

// TestLeaderPaused: a leader that is frozen and thawed takes back nothing early
// and grants nothing, whatever its sockets hold.
func TestLeaderPaused(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	old := c.Leader()
	conn := old.Dial()
	sent := time.Now()
	token := conn.Lock("job", 5)
	waiter := old.Dial()
	waiterOwner := waiter.Queue("job", 60, 5, 1)
	late := old.Dial()

	old.Pause()
	c.WaitReady()
	// What reaches the frozen leader now waits in its sockets.
	late.Send(wire.Request{Op: wire.OpAcquire, Lease: 5, Owner: 7, Text: []byte("free")},
		wire.Request{Op: wire.OpRelease, Owner: 8, Token: token, Text: []byte("job")})
	if s := c.Query("job"); s.Token != token || time.Duration(s.RemainingMS)*time.Millisecond < 5*time.Second-time.Since(sent) {
		t.Fatalf("while the old leader is frozen the lock says %+v, want token %d", s, token)
	}
	taken := c.Obtain("free", 60)
	old.Continue()

	// Its waiter, and what had waited in its sockets, is not executed there: moved,
	// or unknown.
	for conn, owners := range map[*Conn][]uint64{waiter: {waiterOwner}, late: {7, 8}} {
		for range owners {
			r, err := conn.ReadReply(replyWait)
			if err == nil && r.Op != wire.OpMoved && r.Op != wire.OpTimeout {
				t.Fatalf("the thawed leader answered %v", r)
			}
		}
	}
	c.WaitReady()
	if s := c.Query("free"); s.Token != taken {
		t.Fatalf("the lock taken meanwhile says %+v, want token %d", s, taken)
	}
	next := c.Obtain("job", 5)
	if took := time.Since(sent); next <= token || took < 5*time.Second {
		t.Fatalf("the lease of 5 s and token %d ended after %v with token %d", token, took, next)
	}
}

// TestFrozenNodeReadsRenewalsFirst: after a freeze longer than the lease, a renewal
// that waited in the socket still finds its lock. The time frozen does not count.
func TestFrozenNodeReadsRenewalsFirst(t *testing.T) {
	t.Parallel()
	node := Start(t, 1).Nodes[0]
	holder, waiter := node.Dial(), node.Dial()
	token := holder.Lock("job", 4)
	owner := waiter.Queue("job", 60, 5, 1)
	node.Pause()
	frozen := time.Now()
	raw, _ := wire.AppendRequest(nil, &wire.Request{Op: wire.OpKeep, Lease: 4, Owner: 3, Token: token, Text: []byte("job")})
	holder.SendRaw(raw)
	At(frozen.Add(5 * time.Second))
	node.Continue()
	holder.Expect(wire.OpKept, 3)
	if op := holder.Release("job", token); op != wire.OpReleased {
		t.Fatalf("release: %c", op)
	}
	waiter.Expect(wire.OpAcquired, owner)
}

// TestNoQuorum: without a majority nothing is granted, and what waits is told so
// or cut off; with it the lock is as it was.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	leader := c.Leader()
	conn := leader.Dial()
	token := conn.Lock("job", 60)
	for _, n := range c.Others(leader) {
		n.Kill()
	}
	conn.Send(wire.Request{Op: wire.OpAcquire, Lease: 5, Owner: 9, Text: []byte("other")})
	if r, err := conn.ReadReply(Patience); err == nil && r.Op != wire.OpMoved {
		t.Fatalf("without a quorum an acquire was answered %v", r)
	}
	Eventually(t, func() error {
		switch s, err := leader.Status(); {
		case err != nil:
			return err
		case s.Ready || s.Role == "leader":
			return errors.New("a node without a quorum is ready")
		}
		return nil
	})
	code, body, err := leader.Get("/readyz?verbose")
	if err != nil || code != 503 || !strings.Contains(body, "leader") {
		t.Fatalf("readyz without a quorum: %d %q %v", code, body, err)
	}
	if code, body, err := leader.Get("/livez"); err != nil || code != 200 {
		t.Fatalf("livez without a quorum: %d %q %v", code, body, err)
	}
	for _, n := range c.Others(leader) {
		n.Start()
	}
	c.WaitReady()
	if s := c.Query("job"); s.Token != token {
		t.Fatalf("with a quorum again the lock says %+v, want token %d", s, token)
	}
}
