package client

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// errExpired bounces a request whose time had passed before it was sent.
var errExpired = errors.New("not sent in time")

// call is one request. Each time it is submitted to a session exactly one
// result comes back on res, unless it is withdrawn from the queue first.
type call struct {
	op    wire.Op
	key   string
	owner uint64
	token uint64
	lease uint8
	now   bool          // an immediate attempt: wait 0 on the wire
	until time.Duration // nothing is sent after this time
	wait  time.Duration // of an acquire: the time at which its wait ends
	res   chan result   // buffered, 1

	sess   *session      // guarded by its mu once submitted
	sentAt time.Duration // read just before the bytes went
}

// result is the end of one submission.
type result struct {
	reply  wire.Reply
	err    error // nil: reply is the answer
	unsent bool  // with err: not one byte was accepted by the connection
}

// session is one connection: a reader and a writer goroutine that any number
// of calls share.
type session struct {
	c    *Client
	conn net.Conn
	addr string

	mu       sync.Mutex
	queue    []*call          // not sent: may be withdrawn
	pending  map[uint64]*call // possibly sent, by owner
	orphans  map[uint64]*call // given up by their callers: a late grant is given back
	cancels  []uint64
	pings    bool // a liveness ping is due
	retired  bool // takes no further calls
	closed   bool
	cause    error
	lastRead time.Duration
	pingedAt time.Duration // of the unanswered liveness ping; 0 = none

	text []byte // owned by the writer: scratch for keys
	wake chan struct{}
	gone chan struct{} // closed when the session is closed
}

func newSession(c *Client, conn net.Conn, addr string) *session {
	s := &session{
		c: c, conn: conn, addr: addr, pending: make(map[uint64]*call), orphans: make(map[uint64]*call),
		lastRead: c.cfg.now(), wake: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	return s
}

// start runs the session's goroutines; r has read what the greeting needed.
func (s *session) start(r *wire.ReplyReader) {
	s.c.wg.Go(s.writeLoop)
	s.c.wg.Go(func() { s.readLoop(r) })
}

// submit queues a call; false means that this session takes none.
func (s *session) submit(k *call) bool {
	s.mu.Lock()
	if s.retired || s.closed {
		s.mu.Unlock()
		return false
	}
	k.sess = s
	s.queue = append(s.queue, k)
	s.mu.Unlock()
	s.poke()
	return true
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// withdraw takes a call back that was definitely not sent. False: it was, or
// may have been, or its result is on its way.
func (s *session) withdraw(k *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.queue {
		if q == k {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			return true
		}
	}
	return false
}

// cancel asks the server to take a queued acquire out of its queue.
func (s *session) cancel(owner uint64) {
	s.mu.Lock()
	if !s.closed {
		s.cancels = append(s.cancels, owner)
	}
	s.mu.Unlock()
	s.poke()
}

// abandon makes a call whose caller has gone an orphan: should its grant still
// arrive it is given back. It reports false when the result is already there.
func (s *session) abandon(k *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[k.owner] != k {
		return false
	}
	delete(s.pending, k.owner)
	s.orphans[k.owner] = k
	return true
}

func (s *session) writeLoop() {
	var buf []byte
	var sent []sentCall
	for {
		select {
		case <-s.wake:
		case <-s.gone:
			return
		}
		buf, sent = s.gather(buf[:0], sent[:0])
		if len(buf) == 0 {
			continue
		}
		_ = s.conn.SetWriteDeadline(time.Now().Add(transport))
		n, err := s.conn.Write(buf)
		if err != nil {
			s.unsend(sent, n, err)
			s.close(fmt.Errorf("write to %s: %w", s.addr, err))
			return
		}
		if cap(buf) > 64<<10 {
			buf = nil
		}
	}
}

// sentCall is where a call's frame begins in the written buffer.
type sentCall struct {
	off int
	k   *call
}

// gather encodes what is queued. The wait that goes onto the wire is what is
// left of it now: a call that comes late must not begin a fresh wait.
func (s *session) gather(buf []byte, sent []sentCall) ([]byte, []sentCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.cfg.now()
	for i, k := range s.queue {
		s.queue[i] = nil
		if now >= k.until {
			k.res <- result{err: errExpired, unsent: true}
			continue
		}
		req := wire.Request{Op: k.op, Owner: k.owner, Token: k.token, Lease: k.lease}
		s.text = append(s.text[:0], k.key...)
		req.Text = s.text
		if k.op == wire.OpAcquire && !k.now {
			req.Wait = wholeSeconds(k.wait - now)
		}
		next, err := wire.AppendRequest(buf, &req)
		if err != nil {
			k.res <- result{err: err, unsent: true}
			continue
		}
		sent = append(sent, sentCall{len(buf), k})
		buf = next
		k.sentAt = now
		s.pending[k.owner] = k
	}
	s.queue = s.queue[:0]
	for _, owner := range s.cancels {
		buf, _ = wire.AppendRequest(buf, &wire.Request{Op: wire.OpCancel, Owner: owner})
	}
	s.cancels = s.cancels[:0]
	if s.pings {
		s.pings = false
		buf, _ = wire.AppendRequest(buf, &wire.Request{Op: wire.OpPing, Owner: 0})
	}
	return buf, sent
}

// unsend bounces the calls of which the connection took not one byte.
func (s *session) unsend(sent []sentCall, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range sent {
		if c.off < n {
			continue
		}
		delete(s.orphans, c.k.owner)
		if s.pending[c.k.owner] == c.k {
			delete(s.pending, c.k.owner)
			c.k.res <- result{err: err, unsent: true}
		}
	}
}

func (s *session) readLoop(r *wire.ReplyReader) {
	var reply wire.Reply
	for {
		if err := r.Read(&reply); err != nil {
			s.close(fmt.Errorf("session with %s: %w", s.addr, err))
			return
		}
		s.deliver(&reply)
	}
}

// deliver correlates one reply.
func (s *session) deliver(reply *wire.Reply) {
	if reply.Op == wire.OpMoved || reply.Op == wire.OpRefused {
		reply.Text = append([]byte(nil), reply.Text...) // the reader's buffer is reused
	} else {
		reply.Text = nil
	}
	s.mu.Lock()
	s.lastRead, s.pingedAt = s.c.cfg.now(), 0
	if reply.Op == wire.OpMoved {
		s.retired = true
	}
	k, orphan := s.pending[reply.Owner], (*call)(nil)
	if k != nil {
		delete(s.pending, reply.Owner)
	} else if orphan = s.orphans[reply.Owner]; orphan != nil {
		delete(s.orphans, reply.Owner)
	}
	s.mu.Unlock()
	if reply.Op == wire.OpMoved {
		s.c.moved(s, string(reply.Text))
	}
	switch {
	case k != nil:
		k.res <- result{reply: *reply}
	case orphan != nil && reply.Op == wire.OpAcquired:
		s.c.giveBack(orphan.key, reply.Token)
	case reply.Op == wire.OpRefused && reply.Owner == 0:
		s.close(fmt.Errorf("server %s refused the session: %s", s.addr, reply.Text))
	}
}

// close ends the session: what was not sent moves on, what may have been is
// unknown to its callers.
func (s *session) close(cause error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed, s.retired, s.cause = true, true, cause
	queue, pending, orphans := s.queue, s.pending, s.orphans
	s.queue, s.pending, s.orphans = nil, map[uint64]*call{}, map[uint64]*call{}
	close(s.gone)
	s.mu.Unlock()
	_ = s.conn.Close()
	s.c.forget(s, true)
	for _, k := range queue {
		k.res <- result{err: cause, unsent: true}
	}
	for _, k := range pending {
		k.res <- result{err: cause}
	}
	for _, k := range orphans {
		s.c.reclaim(k.key, k.owner)
	}
}

// check closes a session that is done with, sends a liveness ping when an answer is overdue, and closes a session
// whose peer has gone silent: a half-open connection reports no error.
func (s *session) check(now time.Duration) {
	s.mu.Lock()
	waiting := len(s.pending)+len(s.orphans) > 0
	switch {
	case s.closed:
	case !waiting && s.retired && len(s.queue) == 0:
		defer s.close(fmt.Errorf("session with %s is not needed any more", s.addr))
	case !waiting:
		s.pingedAt = 0
	case s.pingedAt == 0 && now-s.lastRead > pingAfter:
		s.pingedAt, s.pings = now, true
		defer s.poke()
	case s.pingedAt != 0 && now-s.pingedAt > pingPatience:
		defer s.close(fmt.Errorf("session with %s: no sign of life for %s", s.addr, now-s.lastRead))
	}
	s.mu.Unlock()
}

const (
	pingAfter    = 2 * time.Second
	pingPatience = 3 * time.Second
)
