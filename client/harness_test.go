package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/wire"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// network is a set of scripted nodes that a client reaches by a dialer.
type network struct {
	t     *testing.T
	mu    sync.Mutex
	nodes map[string]*node
	dials map[string]int
}

// node is one address. Each connection to it is a peer that the test plays.
type node struct {
	accept chan *peer
	hole   bool // connections are never established
	delay  time.Duration
}

func newNetwork(t *testing.T, addrs ...string) *network {
	w := &network{t: t, nodes: map[string]*node{}, dials: map[string]int{}}
	for _, a := range addrs {
		w.add(a)
	}
	return w
}

// add starts a node, after Open one that is no endpoint.
func (w *network) add(addr string) {
	w.mu.Lock()
	w.nodes[addr] = &node{accept: make(chan *peer, 64)}
	w.mu.Unlock()
}

// set changes a node.
func (w *network) set(addr string, f func(n *node)) {
	w.mu.Lock()
	f(w.nodes[addr])
	w.mu.Unlock()
}

func (w *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	w.mu.Lock()
	var n node
	if at := w.nodes[addr]; at != nil {
		n = *at
	}
	w.dials[addr]++
	w.mu.Unlock()
	if n.accept == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if n.hole {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if n.delay > 0 {
		select {
		case <-time.After(n.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ours, theirs := net.Pipe()
	n.accept <- &peer{t: w.t, conn: theirs, addr: addr, requests: wire.NewRequestReader(theirs)}
	return ours, nil
}

func (w *network) remove(addr string) {
	w.mu.Lock()
	delete(w.nodes, addr)
	w.mu.Unlock()
}

func (w *network) dialled(addr string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials[addr]
}

// next accepts the next connection to addr.
func (w *network) next(addr string) *peer {
	w.t.Helper()
	w.mu.Lock()
	accept := w.nodes[addr].accept
	w.mu.Unlock()
	select {
	case p := <-accept:
		return p
	case <-time.After(time.Minute):
		w.t.Fatalf("nobody connected to %s", addr)
		return nil
	}
}

// leader accepts the next connection to addr and greets it as the leader.
func (w *network) leader(addr string) *peer {
	w.t.Helper()
	p := w.next(addr)
	ping := p.expect(wire.OpPing)
	p.reply(wire.Reply{Op: wire.OpPong, Owner: ping.Owner})
	return p
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func testClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) + time.Hour }
}

// opening is Open in the background, so that the test can play the servers.
func (w *network) opening(opts ...Option) <-chan *Client {
	ch := make(chan *Client, 1)
	var endpoints []string
	for a := range w.nodes {
		endpoints = append(endpoints, a)
	}
	go func() {
		cl, err := Open(context.Background(), endpoints, append([]Option{WithDialer(w.dial), WithLabel(""), withClock(testClock())}, opts...)...)
		if err != nil {
			w.t.Errorf("Open: %v", err)
		}
		ch <- cl
	}()
	return ch
}

// open returns a client and its one session with the node "a:1".
func (w *network) open(opts ...Option) (*Client, *peer) {
	w.t.Helper()
	ch := w.opening(opts...)
	p := w.leader("a:1")
	ping := p.expect(wire.OpPing)
	p.reply(wire.Reply{Op: wire.OpPong, Owner: ping.Owner})
	cl := <-ch
	if cl == nil {
		w.t.FailNow()
	}
	w.t.Cleanup(cl.Close)
	return cl, p
}

// acquiring is Acquire in the background.
type acquiring struct {
	lock *Lock
	err  error
}

func acquire(ctx context.Context, cl *Client, key string, opts ...AcquireOption) <-chan acquiring {
	ch := make(chan acquiring, 1)
	go func() {
		l, err := cl.Acquire(ctx, key, opts...)
		ch <- acquiring{l, err}
	}()
	return ch
}

func background(f func() error) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- f() }()
	return ch
}

func wantErr(t *testing.T, err error, kinds ...error) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v", kinds)
	}
	for _, k := range kinds {
		if !errors.Is(err, k) {
			t.Fatalf("error %v, want %v", err, k)
		}
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is no *Error", err)
	}
}

// wantOnlyIndeterminate checks that an unknown outcome matches no error that
// says it is known.
func wantOnlyIndeterminate(t *testing.T, err error) {
	t.Helper()
	wantErr(t, err, ErrIndeterminate)
	for _, definite := range []error{ErrTimeout, ErrBusy, ErrRefused, ErrUnavailable, ErrClosed, ErrNotHeld, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, definite) {
			t.Errorf("%v matches %v too", err, definite)
		}
	}
}

// held locks a key through a peer.
func (p *peer) held(cl *Client, key string, token uint64, opts ...AcquireOption) *Lock {
	p.t.Helper()
	got := acquire(context.Background(), cl, key, opts...)
	p.grant(p.expect(wire.OpAcquire), token)
	r := <-got
	if r.err != nil {
		p.t.Fatal(r.err)
	}
	return r.lock
}
