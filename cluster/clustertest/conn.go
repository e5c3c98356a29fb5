package clustertest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// Conn is one session spoken by hand: raw frames over a real socket. It belongs to
// one goroutine.
type Conn struct {
	net.Conn
	t testing.TB
	r *wire.ReplyReader
}

// Reply is a reply whose text may be kept.
type Reply struct {
	wire.Reply
	Text string
}

// String writes what counts of a reply, as tests compare it.
func (r Reply) String() string { return fmt.Sprintf("%c %d", r.Op, r.Owner) }

// replyWait is how long a reply may take that needs no waiting.
const replyWait = 10 * time.Second

// Dial opens a session.
func Dial(t testing.TB, addr string) *Conn {
	t.Helper()
	c, err := dial(t, addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func dial(t testing.TB, addr string) (*Conn, error) {
	nc, err := net.DialTimeout("tcp", addr, replyWait)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &Conn{Conn: nc, t: t, r: wire.NewReplyReader(nc)}, nil
}

// NewOwner returns a number no other acquire has.
func NewOwner() uint64 { return rand.Uint64() }

// Send writes requests in one go.
func (c *Conn) Send(reqs ...wire.Request) {
	c.t.Helper()
	var raw []byte
	for i := range reqs {
		var err error
		if raw, err = wire.AppendRequest(raw, &reqs[i]); err != nil {
			c.t.Fatal(err)
		}
	}
	c.SendRaw(raw)
}

// SendRaw writes bytes as they are.
func (c *Conn) SendRaw(raw []byte) {
	c.t.Helper()
	if _, err := c.Write(raw); err != nil {
		c.t.Fatal(err)
	}
}

// ReadReply reads the next reply, waiting at most the given time.
func (c *Conn) ReadReply(wait time.Duration) (Reply, error) {
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return Reply{}, err
	}
	var r Reply
	err := c.r.Read(&r.Reply)
	r.Text = string(r.Reply.Text)
	return r, err
}

// Next reads the next reply; it must come soon.
func (c *Conn) Next() Reply {
	c.t.Helper()
	return c.Await(replyWait)
}

// Await reads the next reply; it must come within the given time.
func (c *Conn) Await(wait time.Duration) Reply {
	c.t.Helper()
	r, err := c.ReadReply(wait)
	if err != nil {
		c.t.Fatalf("no reply: %v", err)
	}
	return r
}

// Expect reads the next reply and compares its op and owner.
func (c *Conn) Expect(op wire.Op, owner uint64) Reply {
	c.t.Helper()
	r := c.Next()
	if r.Op != op || r.Owner != owner {
		c.t.Fatalf("reply %v %q, want %c %d", r, r.Text, op, owner)
	}
	return r
}

// Quiet proves that nothing was sent to this session, by a ping whose pong must be
// the next frame.
func (c *Conn) Quiet() {
	c.t.Helper()
	owner := NewOwner()
	c.Send(wire.Request{Op: wire.OpPing, Owner: owner})
	c.Expect(wire.OpPong, owner)
}

// Closed waits for the server to end the session; no reply may come before.
func (c *Conn) Closed(wait time.Duration) {
	c.t.Helper()
	r, err := c.ReadReply(wait)
	if err == nil {
		c.t.Fatalf("reply %v %q, want the end of the session", r, r.Text)
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Fatalf("the session is still open after %v", wait)
	}
}

// Ask sends one request with a new owner and returns its reply.
func (c *Conn) Ask(req wire.Request) Reply {
	c.t.Helper()
	req.Owner = NewOwner()
	c.Send(req)
	r := c.Next()
	if r.Owner != req.Owner {
		c.t.Fatalf("reply %v to request %c %d", r, req.Op, req.Owner)
	}
	return r
}

// Lock acquires a key that is free and returns the token.
func (c *Conn) Lock(key string, lease uint8) uint64 {
	c.t.Helper()
	r := c.Ask(wire.Request{Op: wire.OpAcquire, Lease: lease, Text: []byte(key)})
	if r.Op != wire.OpAcquired {
		c.t.Fatalf("acquire of %q: %v %q", key, r, r.Text)
	}
	return r.Token
}

// Queue sends an acquire that has to wait, and returns its owner when it is in the
// queue as the given number of waiters.
func (c *Conn) Queue(key string, wait, lease uint8, waiters uint32) uint64 {
	c.t.Helper()
	owner := NewOwner()
	c.Send(wire.Request{Op: wire.OpAcquire, Wait: wait, Lease: lease, Owner: owner, Text: []byte(key)})
	if s := c.Query(key); s.Waiters != waiters {
		c.t.Fatalf("%d wait for %q, want %d", s.Waiters, key, waiters)
	}
	return owner
}

// Query asks who holds a key. Requests are taken up in order, so what this session
// sent before has been.
func (c *Conn) Query(key string) Reply {
	c.t.Helper()
	r := c.Ask(wire.Request{Op: wire.OpQuery, Text: []byte(key)})
	if r.Op != wire.OpState {
		c.t.Fatalf("query of %q: %v %q", key, r, r.Text)
	}
	return r
}

// Release gives back a grant and returns the reply's op.
func (c *Conn) Release(key string, token uint64) wire.Op {
	c.t.Helper()
	return c.Ask(wire.Request{Op: wire.OpRelease, Token: token, Text: []byte(key)}).Op
}

// Keep renews a grant and returns the reply's op.
func (c *Conn) Keep(key string, token uint64, lease uint8) wire.Op {
	c.t.Helper()
	return c.Ask(wire.Request{Op: wire.OpKeep, Token: token, Lease: lease, Text: []byte(key)}).Op
}

// errMoved: the node does not lead.
var errMoved = errors.New("moved")

// Ask sends a request to whoever leads, until it is answered by something else
// than Moved. A session that ends without a reply is tried again too, so an
// acquire may here be executed twice: use it for what a repetition does not harm.
func (c *Cluster) Ask(req wire.Request) (reply Reply) {
	c.t.Helper()
	req.Owner = NewOwner()
	Eventually(c.t, func() (err error) {
		leader := c.Leader()
		if leader == nil {
			return errors.New("nobody leads")
		}
		reply, err = askOnce(c.t, leader.Client, req)
		return err
	})
	return reply
}

func askOnce(t testing.TB, addr string, req wire.Request) (Reply, error) {
	conn, err := dial(t, addr)
	if err != nil {
		return Reply{}, err
	}
	defer conn.Close()
	raw, err := wire.AppendRequest(nil, &req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(raw); err != nil {
		return Reply{}, err
	}
	r, err := conn.ReadReply(Patience)
	if err == nil && r.Op == wire.OpMoved {
		err = errMoved
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the session ended without a reply: %w", err)
	}
	return r, err
}

// Query asks whoever leads who holds a key.
func (c *Cluster) Query(key string) Reply {
	c.t.Helper()
	return c.Ask(wire.Request{Op: wire.OpQuery, Text: []byte(key)})
}

// Obtain acquires a key at whoever leads and returns its token. It queues anew
// wherever a change of leader sends it; a grant that it loses sight of that way has
// to run out first.
func (c *Cluster) Obtain(key string, lease uint8) uint64 {
	c.t.Helper()
	r := c.Ask(wire.Request{Op: wire.OpAcquire, Wait: 60, Lease: lease, Text: []byte(key)})
	if r.Op != wire.OpAcquired {
		c.t.Fatalf("acquire of %q: %v %q", key, r, r.Text)
	}
	return r.Token
}
