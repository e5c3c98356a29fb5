package client

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// world is a network of scripted servers inside a synctest bubble: the test
// plays their part frame by frame, and time passes only when everybody waits.
type world struct {
	t     *testing.T
	start time.Time
	skew  atomic.Int64  // by how much the clock that counts suspension is ahead
	reqs  chan received // every request but greetings and liveness pings
	over  chan struct{} // closed when the test is
	wrap  func(addr string, c net.Conn) net.Conn

	mu    sync.Mutex
	nodes map[string]*node
	log   []received // all that was ever received
	moved []received // all acquires that a follower redirected
	peers []*peer    // all that ever greeted successfully
	dials map[string]int
}

// received is one request as it came off the wire.
type received struct {
	wire.Request
	key string
	at  time.Duration // on the client's clock
	p   *peer
}

// inWorld runs f in a bubble with three nodes a, b and c, of which a leads.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, start: time.Now(), reqs: make(chan received, 100_000), over: make(chan struct{}), nodes: map[string]*node{}, dials: map[string]int{}}
		w.skew.Store(int64(time.Hour))
		for _, addr := range []string{"a", "b", "c"} {
			w.nodes[addr] = &node{addr: addr, hint: "a", leads: addr == "a"}
		}
		t.Cleanup(func() { close(w.over) })
		f(t, w)
	})
}

// serve has f answer every further request until the test is over.
func (w *world) serve(f func(r received)) {
	go func() {
		for {
			select {
			case r := <-w.reqs:
				f(r)
			case <-w.over:
				return
			}
		}
	}()
}

func (w *world) now() time.Duration { return time.Since(w.start) + time.Duration(w.skew.Load()) }

// open connects a client with one session, unless an option says otherwise.
func (w *world) open(opts ...Option) *Client {
	w.t.Helper()
	c, err := w.tryOpen([]string{"a", "b", "c"}, opts...)
	if err != nil {
		w.t.Fatalf("open: %v", err)
	}
	return c
}

func (w *world) tryOpen(endpoints []string, opts ...Option) (*Client, error) {
	opts = append([]Option{WithSessions(1), WithDialer(w.dial), withClock(w.now), WithLabel("test")}, opts...)
	c, err := Open(w.t.Context(), endpoints, opts...)
	if err == nil {
		w.t.Cleanup(c.Close)
	}
	return c, err
}

// set changes what a node does.
func (w *world) set(addr string, f func(n *node)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.nodes[addr])
}

func (w *world) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	w.mu.Lock()
	w.dials[addr]++
	n := w.nodes[addr]
	ok := n != nil && !n.down
	blackhole := ok && n.blackhole
	w.mu.Unlock()
	if blackhole {
		<-ctx.Done()
		// As package net does: the error of a dial that ran out of time matches
		// context.DeadlineExceeded.
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
	if !ok {
		return nil, errors.New("connection refused")
	}
	client, server := net.Pipe()
	go (&peer{w: w, n: n, conn: server, woken: make(chan struct{})}).serve()
	if w.wrap != nil {
		client = w.wrap(addr, client)
	}
	return client, nil
}

// expect is the next request, which must be of this kind.
func (w *world) expect(op wire.Op) received {
	w.t.Helper()
	select {
	case r := <-w.reqs:
		if r.Op != op {
			w.t.Fatalf("server got %q, want %q", r.Op, op)
		}
		return r
	case <-time.After(10 * time.Minute):
		w.t.Fatalf("server got nothing in ten minutes, want %q", op)
		panic("unreachable")
	}
}

// quiet checks that no request comes for d.
func (w *world) quiet(d time.Duration) {
	w.t.Helper()
	select {
	case r := <-w.reqs:
		w.t.Fatalf("server got %q for %q, want nothing", r.Op, r.key)
	case <-time.After(d):
	}
}

// answer replies to r on its own session; the owner is filled in.
func (r received) answer(rep wire.Reply) {
	rep.Owner = r.Owner
	r.p.write(rep)
}

func (r received) grant(token uint64) { r.answer(wire.Reply{Op: wire.OpAcquired, Token: token}) }

// seen counts the requests of one kind that any server ever got.
func (w *world) seen(op wire.Op) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.log {
		if r.Op == op {
			n++
		}
	}
	return n
}

// dialled counts the connections to an address.
func (w *world) dialled(addr string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials[addr]
}

// peer is the i-th session that was ever greeted.
func (w *world) peer(i int) *peer {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if i >= len(w.peers) {
		w.t.Fatalf("only %d sessions, want number %d", len(w.peers), i)
	}
	return w.peers[i]
}

// outcome is what an Acquire returned, and when.
type outcome struct {
	l   *Lock
	err error
	at  time.Duration
}

// acquire starts an Acquire.
func (w *world) acquire(ctx context.Context, c *Client, key string, opts ...AcquireOption) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		l, err := c.Acquire(ctx, key, opts...)
		done <- outcome{l, err, w.now()}
	}()
	return done
}

// hold acquires a key.
func (w *world) hold(c *Client, key string, token uint64, opts ...AcquireOption) *Lock {
	w.t.Helper()
	done := w.acquire(w.t.Context(), c, key, opts...)
	w.expect(wire.OpAcquire).grant(token)
	o := <-done
	if o.err != nil {
		w.t.Fatalf("acquire: %v", o.err)
	}
	return o.l
}

// run starts something that returns an error.
func run(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// kinds are all kinds of failure; an error matches exactly the wanted ones.
var kinds = []error{
	ErrTimeout, ErrBusy, ErrIndeterminate, ErrNotHeld, ErrRefused, ErrUnavailable, ErrClosed, ErrLost, ErrReleased,
	context.Canceled, context.DeadlineExceeded, io.EOF,
}

func wantKinds(t *testing.T, err error, want ...error) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v", want)
	}
	for _, k := range kinds {
		if errors.Is(err, k) != slices.Contains(want, k) {
			t.Errorf("error %q: errors.Is(%q) = %v", err, k, errors.Is(err, k))
		}
	}
}
