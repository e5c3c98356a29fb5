package clustertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/wire"
)

// TestCapacity reaches the bounds that the matrix does not: of waiters in all, of
// sessions, of unanswered requests.
func TestCapacity(t *testing.T) {
	t.Parallel()
	c := Start(t, 1, "--max-waiters", "2", "--max-sessions", "6", "--max-inflight-per-session", "8")
	node := c.Nodes[0]
	holder, conn := node.Dial(), node.Dial()
	for _, key := range []string{"a", "b", "c"} {
		holder.Lock(key, 60)
	}
	first := conn.Queue("a", 60, 1, 1)
	conn.Queue("b", 60, 1, 1)
	if r := conn.Ask(wire.Request{Op: wire.OpAcquire, Wait: 60, Lease: 1, Text: []byte("c")}); r.Op != wire.OpBusy {
		t.Fatalf("a third waiter got %v", r)
	}
	conn.Send(wire.Request{Op: wire.OpCancel, Owner: first})
	conn.Expect(wire.OpTimeout, first)
	conn.Queue("c", 60, 1, 1) // there is room again

	// Sessions: what is too many is closed at once, the others go on.
	for range 4 {
		node.Dial().Quiet()
	}
	node.Dial().Closed(replyWait)
	conn.Quiet()

	// A session at its bound of unanswered requests is not read, and goes on where it
	// was when there is room: nothing is lost, nothing is refused.
	var reqs []wire.Request
	for i := range 200 {
		reqs = append(reqs, wire.Request{Op: wire.OpQuery, Owner: uint64(i), Text: []byte("a")})
	}
	holder.Send(reqs...)
	seen := map[uint64]bool{}
	for range reqs {
		r := holder.Next()
		if r.Op != wire.OpState || seen[r.Owner] {
			t.Fatalf("got %v", r)
		}
		seen[r.Owner] = true
	}
}

// TestFramesInPieces sends a conversation full of 0A bytes cut at every byte: the
// header is binary and is counted, not searched.
func TestFramesInPieces(t *testing.T) {
	t.Parallel()
	c := Start(t, 1).Nodes[0].Dial()
	const owner = 0x0a0a0a0a0a0a0a0a
	bytewise := func(r wire.Request) {
		t.Helper()
		raw, err := wire.AppendRequest(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw {
			c.SendRaw(raw[i : i+1])
		}
	}
	bytewise(wire.Request{Op: wire.OpAcquire, Wait: 10, Lease: 10, Owner: owner, Text: []byte("k")})
	token := c.Expect(wire.OpAcquired, owner).Token
	bytewise(wire.Request{Op: wire.OpAcquire, Wait: 10, Lease: 10, Owner: owner + 1, Text: []byte("k")})
	bytewise(wire.Request{Op: wire.OpRelease, Owner: owner + 2, Token: 0x0a0a0a0a0a0a0a0a, Text: []byte("k")})
	c.Expect(wire.OpNotHeld, owner+2)
	bytewise(wire.Request{Op: wire.OpKeep, Lease: 10, Owner: owner + 3, Token: token, Text: []byte("k")})
	c.Expect(wire.OpKept, owner+3)
	bytewise(wire.Request{Op: wire.OpCancel, Owner: owner + 1})
	c.Expect(wire.OpTimeout, owner+1)
	bytewise(wire.Request{Op: wire.OpQuery, Owner: owner + 4, Text: []byte("k")})
	if s := c.Expect(wire.OpState, owner+4); s.Token != token || s.Holder != owner {
		t.Fatalf("got %+v", s)
	}
}

// TestRebuiltCluster: tokens rise though nothing is left of the cluster that
// granted the ones before.
func TestRebuiltCluster(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	node := c.Nodes[0]
	conn := node.Dial()
	var before uint64
	for range 100 {
		before = conn.Lock(fmt.Sprint("job", before), 60)
	}
	node.Kill()
	node.WipeDisk()
	node.Start()
	c.WaitReady()
	if after := node.Dial().Lock("job", 5); after <= before {
		t.Fatalf("token %d in the new cluster, %d in the old one", after, before)
	}
}

// TestOperatorsView: what the HTTP side of a real node tells of a lock.
func TestOperatorsView(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	leader := c.Leader()
	holder := leader.Dial()
	holder.Send(wire.Request{Op: wire.OpHello, Version: wire.Version, Owner: 1, Text: []byte("host/batch/1")})
	holder.Expect(wire.OpHelloOK, 1)
	token := holder.Lock("jobs/1", 60)
	waiter := leader.Dial()
	waiter.Queue("jobs/1", 60, 5, 1)

	l := leader.Locks("?prefix=jobs/&limit=10")
	if l.Stale || l.Total != 1 || l.Truncated || len(l.Locks) != 1 {
		t.Fatalf("the leader lists %+v", l)
	}
	got := l.Locks[0]
	if got.Key != "jobs/1" || got.Token != fmt.Sprint(token) || got.HolderLabel != "host/batch/1" ||
		got.HolderAddr != holder.LocalAddr().String() || got.RemainingMS <= 0 || got.RemainingMS > 60_000 || got.Waiters == nil || *got.Waiters != 1 {
		t.Fatalf("the leader lists %+v", got)
	}
	if s := leader.status(); s.Grants != 1 || s.Waiters != 1 || s.Sessions != 2 || s.Leader.Node != leader.ID || s.Leader.AdminAddr != leader.Admin {
		t.Fatalf("the leader's status is %+v", s)
	}
	for _, n := range c.Others(leader) {
		c.WaitApplied(n)
		l := n.Locks("")
		if !l.Stale || l.LeaderAdminAddr != leader.Admin || len(l.Locks) != 1 || l.Locks[0].Token != fmt.Sprint(token) || l.Locks[0].Waiters != nil {
			t.Fatalf("%s lists %+v", n.ID, l)
		}
	}
	_, metrics, err := leader.Get("/metrics")
	for _, line := range []string{"holdfast_leader 1", "holdfast_grants 1", "holdfast_waiters 1", `holdfast_members{suffrage="voter"} 3`} {
		if !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("no line %q in the metrics (%v)", line, err)
		}
	}
}
