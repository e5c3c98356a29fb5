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
// result comes back on res, unless its caller withdraws it from the queue or
// abandons it.
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

	sess   *session      // guarded by its mu once submitted, as is what follows
	write  uint64        // number of the session's Write that it is part of
	sentAt time.Duration // read just before the bytes went
}

// result is the end of one submission.
type result struct {
	reply  wire.Reply
	err    error // nil: reply is the answer
	unsent bool  // with err: not one byte was accepted by the connection
	final  bool  // with unsent: nor will another session do better
}

// session is one connection: a reader and a writer goroutine that any number
// of calls share.
type session struct {
	c    *Client
	conn net.Conn
	addr string
	born time.Duration

	mu       sync.Mutex
	queue    []*call          // not sent: may be withdrawn
	pending  map[uint64]*call // possibly sent, by owner
	cancels  []uint64
	writes   uint64 // number of the latest Write
	writing  bool   // it has not returned
	pings    bool   // a liveness ping is due
	retired  bool   // takes no further calls
	closed   bool
	cause    error // of closed
	lastRead time.Duration
	silent   int // checks since the unanswered liveness ping; 0 = none is out

	text []byte // owned by the writer: scratch for keys
	wake chan struct{}
	gone chan struct{} // closed when the session is closed
}

func newSession(c *Client, conn net.Conn, addr string) *session {
	s := &session{
		c: c, conn: conn, addr: addr, born: c.cfg.now(), pending: make(map[uint64]*call),
		wake: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	s.lastRead = s.born
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

// abandon forgets a call that may have been sent; its reply will be ignored.
// False: its result is there, or on its way.
func (s *session) abandon(k *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[k.owner] != k {
		return false
	}
	delete(s.pending, k.owner)
	return true
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
	s.lastRead, s.silent = s.c.cfg.now(), 0
	if reply.Op == wire.OpMoved {
		s.retired = true
	}
	k := s.pending[reply.Owner]
	delete(s.pending, reply.Owner)
	s.mu.Unlock()
	if reply.Op == wire.OpMoved {
		s.c.moved(s, string(reply.Text))
	}
	switch {
	case k != nil:
		k.res <- result{reply: *reply}
	case reply.Op == wire.OpRefused && reply.Owner == 0:
		s.close(fmt.Errorf("server %s refused the session: %s", s.addr, reply.Text))
	}
}

// close ends the session: what was not sent moves on, what may have been is
// unknown to its callers. What is being written right now is left to wrote.
func (s *session) close(cause error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed, s.retired, s.cause = true, true, cause
	queue := s.queue
	s.queue = nil
	var unknown []*call
	for owner, k := range s.pending {
		if !s.writing || k.write != s.writes {
			delete(s.pending, owner)
			unknown = append(unknown, k)
		}
	}
	close(s.gone)
	s.mu.Unlock()
	_ = s.conn.Close()
	s.c.forget(s, true)
	for _, k := range queue {
		k.res <- result{err: cause, unsent: true}
	}
	for _, k := range unknown {
		k.res <- result{err: cause}
	}
}

// check closes a session that is done with, sends a liveness ping when an
// answer is overdue, and closes a session whose peer has gone silent: a half-open
// connection reports no error. Patience is counted in checks, not in time: after
// this process was frozen the answer may be here and only not read yet.
func (s *session) check(now time.Duration) {
	s.mu.Lock()
	waiting := len(s.pending) > 0
	switch {
	case s.closed:
	case !waiting && s.retired && len(s.queue) == 0:
		defer s.close(fmt.Errorf("session with %s is not needed any more", s.addr))
	case !waiting:
		s.silent = 0
	case s.silent == 0 && now-s.lastRead > pingAfter:
		s.silent, s.pings = 1, true
		defer s.poke()
	case s.silent > 0 && s.silent < pingPatience:
		s.silent++
	case s.silent > 0:
		defer s.close(fmt.Errorf("session with %s: no sign of life for %s", s.addr, now-s.lastRead))
	}
	s.mu.Unlock()
}

const (
	checkEvery   = time.Second
	pingAfter    = 2 * time.Second
	pingPatience = 3 // checks
)
