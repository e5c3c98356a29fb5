package clustertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// The states of a key, by the column headers of the specification.
const (
	free       = "free"
	held       = "held"
	queued     = "held, others wait"
	queueFull  = "queue full"
	serverFull = "server full"
	follower   = "not the leader"
)

var states = []string{free, held, queued, queueFull, serverFull, follower}

// Bounds of the node under test, small enough to be reached.
const (
	maxWaitersPerKey = 2
	maxGrants        = 6
)

// cell is one request on a key in one state.
type cell struct {
	*testing.T
	state   string
	key     string
	holder  *Conn  // session that acquired the key; nil if it is free
	token   uint64 // of its grant
	owner   uint64 // of its acquire
	lease   uint8
	sent    time.Time // right before that
	waiting []waiter
	c       *Conn // the session that sends the request; nothing was sent on it
}

// waiter is a queued acquire and its session.
type waiter struct {
	c     *Conn
	owner uint64
}

const otherToken = 1 // below any token that was ever granted

// newCell brings a key of its own into the state. In "server full" the key is
// held and the rest of the table is full of others.
func newCell(t *testing.T, leads, forming *Node, state string, lease uint8) *cell {
	x := &cell{T: t, state: state, key: "matrix/" + t.Name(), lease: lease}
	if state == follower {
		x.c = Dial(t, forming.Client)
		return x
	}
	x.c = Dial(t, leads.Client)
	if state == free {
		return x
	}
	x.holder = Dial(t, leads.Client)
	x.owner, x.sent = NewOwner(), time.Now()
	x.holder.Send(wire.Request{Op: wire.OpAcquire, Lease: lease, Owner: x.owner, Text: []byte(x.key)})
	x.token = x.holder.Expect(wire.OpAcquired, x.owner).Token
	t.Cleanup(func() { x.holder.Release(x.key, x.token) })
	waiters := map[string]int{queued: 1, queueFull: maxWaitersPerKey}[state]
	for i := range waiters {
		c := Dial(t, leads.Client)
		x.waiting = append(x.waiting, waiter{c, c.Queue(x.key, 60, 2, uint32(i+1))})
	}
	t.Cleanup(func() { // the waiters go first, so that releasing frees the key
		for _, w := range x.waiting {
			_ = w.c.Close()
		}
		Within(t, 5*time.Second, func() error {
			if n := x.holder.Query(x.key).Waiters; n > 0 {
				return fmt.Errorf("%d still wait", n)
			}
			return nil
		})
	})
	if state == serverFull {
		x.fill()
	}
	return x
}

// fill fills the table of grants with other keys.
func (x *cell) fill() {
	filler := make(map[string]uint64)
	for i := range maxGrants - 1 {
		key := fmt.Sprintf("%s/%d", x.key, i)
		filler[key] = x.holder.Lock(key, 60)
	}
	x.Cleanup(func() {
		for key, token := range filler {
			x.holder.Release(key, token)
		}
	})
}

func (x *cell) acquire(wait uint8, owner uint64, key string) wire.Request {
	return wire.Request{Op: wire.OpAcquire, Wait: wait, Lease: 2, Owner: owner, Text: []byte(key)}
}

// granted expects a grant of the key to this owner, and its release to work.
func (x *cell) granted(c *Conn, owner uint64) {
	x.Helper()
	r := c.Expect(wire.OpAcquired, owner)
	if r.Token <= x.token {
		x.Fatalf("token %d after %d: tokens must rise", r.Token, x.token)
	}
	s := c.Query(x.key)
	if s.Token != r.Token || s.Holder != owner || s.RemainingMS == 0 || s.RemainingMS > 2000 {
		x.Fatalf("after the grant of %d to %d the key says %+v", r.Token, owner, s)
	}
	if op := c.Release(x.key, r.Token); op != wire.OpReleased {
		x.Fatalf("release: %c", op)
	}
}

// untouched expects that the holder's grant and the queue are as they were.
func (x *cell) untouched() {
	x.Helper()
	if x.state == follower {
		return
	}
	s := Dial(x.T, x.c.RemoteAddr().String()).Query(x.key)
	if s.Token != x.token || s.Holder != x.owner || int(s.Waiters) != len(x.waiting) {
		x.Fatalf("token %d holder %d waiters %d, want %d %d %d", s.Token, s.Holder, s.Waiters, x.token, x.owner, len(x.waiting))
	}
	if x.token != 0 && s.RemainingMS > uint32(x.lease)*1000 {
		x.Fatalf("%d ms remain of a lease of %d s", s.RemainingMS, x.lease)
	}
	for _, w := range x.waiting {
		w.c.Quiet()
	}
}

// answered sends the request and expects this reply, and nothing else to change.
func (x *cell) answered(req wire.Request, op wire.Op) Reply {
	x.Helper()
	req.Owner = NewOwner()
	x.c.Send(req)
	r := x.c.Expect(op, req.Owner)
	x.untouched()
	return r
}

// handedOver expects that the queue is granted the key one after the other, in
// order, each once the one before it has released.
func (x *cell) handedOver() {
	x.Helper()
	for len(x.waiting) > 0 {
		w := x.waiting[0]
		x.waiting = x.waiting[1:]
		x.granted(w.c, w.owner)
	}
	if s := x.holder.Query(x.key); s.Token != 0 {
		x.Fatalf("after the last release the key says %+v", s)
	}
}

func TestMatrix(t *testing.T) {
	t.Parallel()
	one := Start(t, 1, "--max-waiters-per-key", fmt.Sprint(maxWaitersPerKey), "--max-grants", fmt.Sprint(maxGrants))
	// A node of three of which the others never come: it does not lead.
	three := New(t, 3)
	three.Nodes[0].Start()

	table := section(t, "11. Request × key state")
	tested, broken := map[string]bool{}, 0
	for _, row := range table[1:] {
		for i, state := range states {
			if table[0][i+1] != state {
				t.Fatalf("column %d of the specification is %q, the test's is %q", i+1, table[0][i+1], state)
			}
			says := row[i+1]
			find := matrix[row[0]][state]
			tested[row[0]+"|"+state] = true
			switch {
			case says == "" && find.check == nil:
				continue
			case find.check == nil:
				t.Errorf("%s on a key that is %s is specified (%s) and not tested", row[0], state, says)
				continue
			case find.says != says:
				t.Errorf("%s, %s: the specification says %q, the test checks %q", row[0], state, says, find.says)
				continue
			}
			if broken >= 5 {
				t.Fatal("five cells fail; the rest is not tried")
			}
			ok := t.Run(row[0]+"/"+state, func(t *testing.T) {
				lease := uint8(30)
				if row[0] == "lease runs out" {
					lease = 1
				}
				find.check(newCell(t, one.Nodes[0], three.Nodes[0], state, lease))
			})
			if !ok {
				broken++
			}
		}
	}
	for request, cells := range matrix {
		for state := range cells {
			if !tested[request+"|"+state] {
				t.Errorf("%s on a key that is %s is tested and not specified", request, state)
			}
		}
	}
}
