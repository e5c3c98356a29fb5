package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

var processStart = time.Now()

// owners numbers every request of this process: a random start, so that two
// processes do not meet, and a step of one, so that one process never repeats.
var owners atomic.Uint64

func init() {
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails, and never returns short
	owners.Store(binary.BigEndian.Uint64(seed[:]))
}

// newOwner is never 0, which the protocol uses for "nobody".
func newOwner() uint64 {
	for {
		if o := owners.Add(1); o != 0 {
			return o
		}
	}
}

// Client shares a few sessions with the leader among all its users. Make it
// with Open.
type Client struct {
	cfg       config
	endpoints []string
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	wg        sync.WaitGroup // every goroutine of this client
	closeOnce sync.Once
	givebacks chan struct{} // slots for releases of unused grants
	reclaims  chan struct{} // slots for looks for unheard-of grants
	renewals  *renewer
	timers    sync.Pool // of stopped *time.Timer

	mu         sync.Mutex
	sessions   []*session            // with the leader, usable
	open       map[*session]struct{} // every session that is not closed
	next       int                   // round robin
	hint       string                // where a server said the leader is
	connecting bool                  // a connector goroutine runs
	moreAfter  time.Duration         // no further session is tried for before it
	changed    chan struct{}         // closed and replaced when sessions were gained, or a search failed
	lastErr    error                 // why the latest search for the leader failed
	flaps      int                   // sessions in a row that were of use for less than a second
	closed     bool
	held       map[*Lock]struct{}
}

// Open connects to the cluster whose client addresses (host:port) are given:
// any of them will do, more make finding the leader robust. It tries all at
// once and returns when the leader has answered; without an answer within 5 s,
// or when ctx ends, it fails with ErrUnavailable.
func Open(ctx context.Context, endpoints []string, opts ...Option) (*Client, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if len(endpoints) == 0 {
		return nil, errors.New("client: no endpoints: name at least one node as host:port")
	}
	if slices.Contains(endpoints, "") {
		return nil, errors.New("client: an endpoint is empty: write it as host:port")
	}
	if err := ctx.Err(); err != nil {
		return nil, &Error{Op: "open", Kind: ErrUnavailable, Cause: err}
	}
	c := &Client{
		cfg: cfg, endpoints: slices.Clone(endpoints),
		givebacks: make(chan struct{}, cleanupSlots), reclaims: make(chan struct{}, cleanupSlots),
		changed: make(chan struct{}), open: make(map[*session]struct{}), held: make(map[*Lock]struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.renewals = newRenewer(c)
	c.wg.Go(c.renewals.run)
	c.wg.Go(c.watchSessions)
	if _, err := c.session(ctx, cfg.now()+transport); err != nil {
		c.Close()
		return nil, &Error{Op: "open", Kind: ErrUnavailable, Cause: err}
	}
	return c, nil
}

// Close ends all sessions and waits for the client's goroutines. Locks still
// held are not released: their leases run out. Release them first to free
// their keys at once. Grants that nobody will use and that are being given back
// get up to a second to be so.
func (c *Client) Close() {
	c.closeOnce.Do(c.settleUp)
	c.mu.Lock()
	c.closed = true
	open, held := slices.Collect(maps.Keys(c.open)), slices.Collect(maps.Keys(c.held))
	c.mu.Unlock()
	c.cancel()
	for _, s := range open {
		s.close(ErrClosed)
	}
	for _, l := range held {
		l.finish(ErrClosed, true)
	}
	c.wg.Wait()
}

// session returns a session with the leader, waiting for one until the time
// until or the end of ctx. The error is ErrClosed, that of ctx, or says why no
// leader was found.
func (c *Client) session(ctx context.Context, until time.Duration) (*session, error) {
	var timer *time.Timer
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, ErrClosed
		}
		n := len(c.sessions)
		if n < c.cfg.sessions && !c.connecting && (n == 0 || c.cfg.now() >= c.moreAfter) {
			c.connecting = true
			c.wg.Go(c.connect)
		}
		if n > 0 {
			c.next++
			s := c.sessions[c.next%n]
			c.mu.Unlock()
			return s, nil
		}
		changed, last := c.changed, c.lastErr
		c.mu.Unlock()
		left := until - c.cfg.now()
		if left <= 0 {
			if last == nil {
				last = errExpired
			}
			return nil, last
		}
		if timer == nil {
			timer = time.NewTimer(left)
			defer timer.Stop()
		} else {
			timer.Reset(left)
		}
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// adopt makes a new session with the leader available.
func (c *Client) adopt(s *session, r *wire.ReplyReader) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		_ = s.conn.Close()
		return false
	}
	c.sessions = append(c.sessions, s)
	c.open[s] = struct{}{}
	s.start(r)
	c.announce(nil)
	c.mu.Unlock()
	return true
}

// announce wakes all who wait for a session; c.mu is held. Of the error only
// the text is kept: a dial's timeout would match context.DeadlineExceeded and
// look like the end of a caller's context.
func (c *Client) announce(err error) {
	if c.lastErr = nil; err != nil {
		c.lastErr = errors.New(err.Error())
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// forget gives a session no further calls. It stays open for the answers it
// still owes, unless it is closed.
func (c *Client) forget(s *session, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if closed {
		delete(c.open, s)
	}
	if i := slices.Index(c.sessions, s); i >= 0 {
		c.sessions = slices.Concat(c.sessions[:i], c.sessions[i+1:])
		if c.flaps++; c.cfg.now()-s.born >= time.Second {
			c.flaps = 0
		}
	}
}

// moved notes that a server does not lead, and who does if it said so.
func (c *Client) moved(s *session, leader string) {
	c.forget(s, false)
	c.mu.Lock()
	if leader != s.addr { // a server that names itself knows nothing
		c.hint = leader
	}
	c.mu.Unlock()
}

// watchSessions checks the sessions' liveness.
func (c *Client) watchSessions() {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return
		}
		c.mu.Lock()
		sessions := slices.Collect(maps.Keys(c.open))
		c.mu.Unlock()
		now := c.cfg.now()
		for _, s := range sessions {
			s.check(now)
		}
	}
}
