package clustertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// What users of other lock services complained about in public; ours must not earn
// it. The names in parentheses are of those reports.
func TestComplaints(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	for name, test := range map[string]func(*testing.T, *Cluster, *Node){
		"a lease does not run while its owner waits (etcd 9921)":             leaseStartsWithGrant,
		"a retried release ends nobody's newer grant (etcd 22082)":           retriedRelease,
		"similar keys do not disturb each other (etcd website 710)":          similarKeys,
		"a waiter whose session closed does not stall (Redisson 4595)":       closedWaiter,
		"a waiter whose process was killed does not stall (Redisson 4595)":   killedWaiter,
		"a waiter that gave up, among others, does not stall":                cancelledWaiters,
		"a grant nobody can be told of is given back at once":                orphan,
		"a waiter that timed out keeps no place and the rest keep theirs":    timedOutWaiter,
		"a lock that was queried, pinged and refused about goes on as it is": lookedAt,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := c.For(t)
			test(t, c, c.Nodes[0])
		})
	}
}

func leaseStartsWithGrant(t *testing.T, _ *Cluster, node *Node) {
	holder, waiter := node.Dial(), node.Dial()
	token := holder.Lock("queue-time", 30)
	begin := time.Now()
	owner := waiter.Queue("queue-time", 60, 1, 1)
	// It waits for longer than its lease.
	At(begin.Add(1500 * time.Millisecond))
	holder.Release("queue-time", token)
	r := waiter.Expect(wire.OpAcquired, owner)
	granted := time.Now()
	if r.WaitedMS < 1400 || time.Duration(r.WaitedMS)*time.Millisecond > granted.Sub(begin) {
		t.Fatalf("waited_ms is %d after %v in the queue", r.WaitedMS, granted.Sub(begin))
	}
	// Seven tenths of the lease later it is still held, and can be renewed.
	At(begin.Add(time.Duration(r.WaitedMS)*time.Millisecond + 700*time.Millisecond))
	if op := waiter.Keep("queue-time", r.Token, 5); op != wire.OpKept {
		t.Fatalf("keep %v after a grant with a lease of 1 s: %c", time.Since(granted), op)
	}
	waiter.Release("queue-time", r.Token)
}

func retriedRelease(t *testing.T, _ *Cluster, node *Node) {
	first, second := node.Dial(), node.Dial()
	old := first.Lock("retry", 30)
	owner := second.Queue("retry", 60, 30, 1)
	release := wire.Request{Op: wire.OpRelease, Owner: 77, Token: old, Text: []byte("retry")}
	first.Send(release)
	first.Expect(wire.OpReleased, 77)
	token := second.Expect(wire.OpAcquired, owner).Token
	// The same bytes again, on both sessions, as a client that lost its reply does.
	for _, c := range []*Conn{first, second, node.Dial()} {
		c.Send(release)
		c.Expect(wire.OpNotHeld, 77)
	}
	if s := first.Query("retry"); s.Token != token {
		t.Fatalf("the newer grant %d says %+v", token, s)
	}
	if op := first.Keep("retry", old, 200); op != wire.OpNotHeld {
		t.Fatalf("keep of the old token: %c", op)
	}
	second.Release("retry", token)
}

func similarKeys(t *testing.T, _ *Cluster, node *Node) {
	c := node.Dial()
	long := strings.Repeat("a", 512)
	keys := []string{
		"a", "a/", "a/b", "a//b", "A", "a ", " a", "a\x00", "a\r", "ä", "a\u0308", "/", "*", "a*", "a%2F", long, long[:511], long[:511] + "b",
	}
	tokens := map[string]uint64{}
	for _, key := range keys {
		tokens[key] = c.Lock(key, 60) // free, whatever others are held
	}
	waiter := node.Dial()
	owner := waiter.Queue("a/", 60, 60, 1)
	if op := c.Release("a", tokens["a/"]); op != wire.OpNotHeld {
		t.Fatalf("release of one key with the token of another: %c", op)
	}
	delete(tokens, "a")
	c.Release("a", c.Query("a").Token)
	waiter.Quiet()
	for key, token := range tokens {
		s := c.Query(key)
		want := 0
		if key == "a/" {
			want = 1
		}
		if s.Token != token || int(s.Waiters) != want {
			t.Fatalf("%.20q says %+v, want token %d and %d waiters", key, s, token, want)
		}
		if key != "a/" {
			c.Release(key, token)
		}
	}
	c.Release("a/", tokens["a/"])
	waiter.Release("a/", waiter.Expect(wire.OpAcquired, owner).Token)
}

func closedWaiter(t *testing.T, _ *Cluster, node *Node) {
	holder, dead, next := node.Dial(), node.Dial(), node.Dial()
	token := holder.Lock("closed-waiter", 60)
	dead.Queue("closed-waiter", 200, 60, 1)
	owner := next.Queue("closed-waiter", 200, 60, 2)
	_ = dead.Close()
	holder.Release("closed-waiter", token)
	next.Release("closed-waiter", next.Expect(wire.OpAcquired, owner).Token)
}

func killedWaiter(t *testing.T, c *Cluster, node *Node) {
	holder, next := node.Dial(), node.Dial()
	token := holder.Lock("killed-waiter", 60)
	proc := c.CLI("acquire", "killed-waiter", "--wait", "200s", "--lease", "60s")
	Eventually(t, func() error { return waiters(holder.Query("killed-waiter"), 1) })
	owner := next.Queue("killed-waiter", 200, 60, 2)
	proc.Kill()
	holder.Release("killed-waiter", token)
	next.Release("killed-waiter", next.Expect(wire.OpAcquired, owner).Token)
}

func cancelledWaiters(t *testing.T, _ *Cluster, node *Node) {
	holder := node.Dial()
	token := holder.Lock("cancelled", 60)
	c := node.Dial()
	var owners []uint64
	for i := range 10 {
		owners = append(owners, c.Queue("cancelled", 200, 60, uint32(i+1)))
	}
	for i := 0; i < 10; i += 2 { // every second, the head among them
		c.Send(wire.Request{Op: wire.OpCancel, Owner: owners[i]})
		c.Expect(wire.OpTimeout, owners[i])
	}
	holder.Release("cancelled", token)
	for i := 1; i < 10; i += 2 {
		r := c.Expect(wire.OpAcquired, owners[i])
		c.Release("cancelled", r.Token)
	}
}

// orphan: sessions that send an acquire and vanish leave nothing behind.
func orphan(t *testing.T, _ *Cluster, node *Node) {
	watcher := node.Dial()
	for i := range 50 {
		c := node.Dial()
		c.Send(wire.Request{Op: wire.OpAcquire, Wait: 100, Lease: 2, Owner: uint64(i), Text: []byte("orphan")})
		_ = c.Close()
	}
	// A grant that was handed to the socket in time lives on for its lease, of 2 s.
	begin := time.Now()
	owner := watcher.Ask(wire.Request{Op: wire.OpAcquire, Wait: 100, Lease: 2, Text: []byte("orphan")})
	if owner.Op != wire.OpAcquired {
		t.Fatalf("got %v", owner)
	}
	if took := time.Since(begin); took > 6*time.Second {
		t.Fatalf("the key was stalled for %v", took)
	}
	watcher.Release("orphan", owner.Token)
}

func timedOutWaiter(t *testing.T, _ *Cluster, node *Node) {
	holder, c := node.Dial(), node.Dial()
	token := holder.Lock("timed-out", 60)
	begin := time.Now()
	first := c.Queue("timed-out", 1, 60, 1)
	second := c.Queue("timed-out", 60, 60, 2)
	c.Expect(wire.OpTimeout, first)
	if took := time.Since(begin); took < time.Second || took > 5*time.Second {
		t.Fatalf("a wait of 1 s ended after %v", took)
	}
	again := c.Queue("timed-out", 60, 60, 2) // at the tail
	holder.Release("timed-out", token)
	c.Release("timed-out", c.Expect(wire.OpAcquired, second).Token)
	c.Release("timed-out", c.Expect(wire.OpAcquired, again).Token)
}

func lookedAt(t *testing.T, _ *Cluster, node *Node) {
	c := node.Dial()
	token := c.Lock("looked-at", 2)
	begin := time.Now()
	for time.Since(begin) < 1500*time.Millisecond {
		other := node.Dial()
		other.Ask(wire.Request{Op: wire.OpQuery, Text: []byte("looked-at")})
		other.Ask(wire.Request{Op: wire.OpPing})
		if r := other.Ask(wire.Request{Op: wire.OpAcquire, Lease: 200, Text: []byte("looked-at")}); r.Op != wire.OpTimeout {
			t.Fatalf("acquire of a held key: %v", r)
		}
		if op := other.Keep("looked-at", token-1, 200); op != wire.OpNotHeld {
			t.Fatalf("keep with another token: %c", op)
		}
		_ = other.Close()
	}
	Within(t, 3*time.Second, func() error {
		if s := c.Query("looked-at"); s.Token != 0 {
			return fmt.Errorf("a lease of 2 s goes on: %d ms remain", s.RemainingMS)
		}
		return nil
	})
}
