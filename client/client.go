package client

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// Client shares a few connections to the leader among all its users. Open makes
// one; Close ends it. All methods are safe for any number of goroutines.
type Client struct {
	cfg  config
	log  *slog.Logger
	now  func() time.Duration
	wg   sync.WaitGroup // every goroutine of this client
	kick chan struct{}  // the scheduler has an earlier time to wait for
	seek chan struct{}  // the search for a leader has news
	idle chan struct{}  // after Close began: no call is open
	stop chan struct{}  // closed when everything has to end
	over chan struct{}  // closed when everything has ended
	ctx  context.Context
	end  context.CancelFunc

	// mu guards all that follows and the state of all sessions, calls, locks and
	// timers. It is held for moments, never across I/O, and a batch of replies
	// or of requests takes it once.
	mu       sync.Mutex
	sessions []*session // alive, usable or not
	urgent   callList   // releases, keeps and questions without a session
	waiting  callList   // acquires without one
	open     int        // calls not settled
	timers   timers
	wakeAt   time.Duration // when the scheduler looks again
	addrs    map[string]*addr
	seeking  bool          // the search for a leader runs
	growing  bool          // a further session is being opened
	growAt   time.Duration // not before this time
	locks    map[*Lock]struct{}
	orphans  int // acquires being looked after by reclaim
	closed   bool
	after    []func() // run once mu is free: calls into code that is not ours
	scratch  []byte   // a key on its way into a frame
}

// Open finds the leader of the cluster whose nodes have these client addresses
// (host:port). One node is enough; with all of them a dead one does no harm. They
// are asked at once, and the first one that leads, or that the others point to,
// is used. It fails with ErrUnavailable when none is found within 5 s, and with
// ctx's error when that ends first. Names are resolved anew at each connection.
func Open(ctx context.Context, endpoints []string, opts ...Option) (*Client, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("client: no endpoints: name at least one node as host:port")
	}
	c := &Client{
		cfg: cfg, log: cfg.log, now: cfg.now,
		kick: make(chan struct{}, 1), seek: make(chan struct{}, 1), idle: make(chan struct{}, 1),
		stop: make(chan struct{}), over: make(chan struct{}),
		addrs: make(map[string]*addr), locks: make(map[*Lock]struct{}),
		scratch: make([]byte, 0, wire.MaxKeyLen),
	}
	for _, e := range endpoints {
		if _, _, err := net.SplitHostPort(e); err != nil {
			return nil, fmt.Errorf("client: endpoint %q: use host:port: %w", e, err)
		}
		c.addrs[e] = &addr{endpoint: true}
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		c.runTimers()
	}()
	if err := c.Ping(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// submit starts a call. Needs c.mu.
func (c *Client) submit(k *call) {
	k.c, k.what = c, k
	c.open++
	first := k.sendUntil()
	if k.op != wire.OpAcquire {
		first = min(k.start+k.patience, first)
	}
	c.schedule(&k.timer, first)
	if s := c.pick(k.op); s != nil && c.urgent.n == 0 && (k.op != wire.OpAcquire || c.waiting.n == 0) {
		s.add(k, k.start)
		return
	}
	c.enqueue(k)
	c.pump(k.start)
}

// enqueue lets a call wait for a session, unless its caller has gone or its time
// has passed. Needs c.mu.
func (c *Client) enqueue(k *call) {
	if l := c.queueFor(k); l != nil {
		l.push(k)
	}
}

// requeue is enqueue for a call that was not sent: it goes back in front.
func (c *Client) requeue(k *call) {
	if l := c.queueFor(k); l != nil {
		l.pushFront(k)
	}
}

func (c *Client) queueFor(k *call) *callList {
	k.state = waiting
	switch {
	case k.left != nil:
		c.settleUnsent(k, k.left, nil)
		return nil
	case c.now() >= k.sendUntil():
		kind, cause := c.notSent(k)
		c.settleUnsent(k, kind, cause)
		return nil
	}
	if k.pos == 0 { // its alarm has gone off: it is what brought the call here
		c.schedule(&k.timer, k.sendUntil())
	}
	if k.op == wire.OpAcquire {
		return &c.waiting
	}
	return &c.urgent
}

// pump gives waiting calls to sessions, and sees to it that there are some.
// Needs c.mu.
func (c *Client) pump(now time.Duration) {
	for _, l := range []*callList{&c.urgent, &c.waiting} {
		for l.n > 0 {
			s := c.pick(l.first.op)
			if s == nil {
				break
			}
			s.add(l.pop(), now)
		}
	}
	if c.urgent.n+c.waiting.n == 0 {
		return
	}
	if c.closed {
		c.giveUpWaiting()
		return
	}
	if c.wantsLeader() {
		c.startSeeking()
	}
}

// pick returns the usable session with the least to do, or nil. Needs c.mu.
func (c *Client) pick(op wire.Op) *session {
	var best *session
	usable := 0
	for _, s := range c.sessions {
		if !s.usable() {
			continue
		}
		usable++
		if op == wire.OpAcquire && s.acquires >= maxAcquires {
			continue
		}
		if best == nil || s.load < best.load {
			best = s
		}
	}
	if best != nil && best.load >= growLoad && usable < c.cfg.sessions {
		c.grow(best.addr)
	}
	return best
}

// wantsLeader reports whether calls wait and no session can take them. Needs c.mu.
func (c *Client) wantsLeader() bool {
	return !c.closed && c.urgent.n+c.waiting.n > 0 && !c.anyUsable()
}

// anyUsable reports whether any session takes new calls. Needs c.mu.
func (c *Client) anyUsable() bool { return slices.ContainsFunc(c.sessions, (*session).usable) }

// adopt makes a session of a greeted connection. Needs c.mu.
func (c *Client) adopt(g *greeted, now time.Duration) {
	s := &session{
		c: c, conn: g.conn, raw: g.raw, addr: g.addr,
		wake: make(chan struct{}, 1), read: make(chan struct{}),
		pending: make(map[uint64]*call), pingOwner: newOwner(), lastRead: now,
	}
	s.what = s
	alive := 0
	for _, t := range c.sessions {
		if !t.draining {
			alive++
		}
	}
	for _, t := range c.sessions {
		if alive >= c.cfg.sessions && t.avoided && !t.draining {
			t.draining = true
			alive--
			c.schedule(&t.timer, now) // it may owe nothing already
		}
	}
	c.sessions = append(c.sessions, s)
	c.wg.Add(2)
	go s.writeLoop()
	go s.readLoop(g.replies)
	c.log.Debug("connected to the leader", "addr", s.addr)
	c.pump(now)
}

// forget takes an ended session out. Needs c.mu.
func (c *Client) forget(s *session) {
	for i, t := range c.sessions {
		if t == s {
			c.sessions = append(c.sessions[:i:i], c.sessions[i+1:]...)
			break
		}
	}
	if !s.draining { // otherwise it has failed before, or ended well
		c.failed(s.addr, s.err, c.now())
	}
}

// later runs f once mu is free. Needs c.mu.
func (c *Client) later(f func()) { c.after = append(c.after, f) }

// unlock frees mu and then does what must not be done under it.
func (c *Client) unlock() {
	after := c.after
	c.after = nil
	c.mu.Unlock()
	for _, f := range after {
		f()
	}
}
