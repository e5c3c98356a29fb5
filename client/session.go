package client

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

const (
	// batchBytes is about how much goes into one Write: large enough for
	// hundreds of requests, small enough that a wait in it is not stale.
	batchBytes = 64 << 10
	// minWriteTime keeps a request whose time is nearly over from failing a
	// write, and with it a session, that would have taken microseconds.
	minWriteTime = 100 * time.Millisecond
	// drainTime is how long replies are still read after a failed write: a
	// server that closes politely has sent them before.
	drainTime = 200 * time.Millisecond
	// quietTime without a byte from a server that owes an answer brings a ping;
	// suspectTime without an answer to it makes calls avoid the session;
	// after deadTime it is closed. Half-open connections report no error.
	quietTime   = 2 * time.Second
	suspectTime = time.Second
	deadTime    = 5 * time.Second
)

// session is one connection to a leader, shared by any number of calls: a
// reader and a writer goroutine. Everything below conn is guarded by Client.mu.
type session struct {
	c    *Client
	conn net.Conn
	raw  net.Conn // conn, or what is under its TLS
	addr string
	wake chan struct{} // the writer has something to do
	read chan struct{} // closed when the reader has ended

	out       []*call          // not sent, oldest first; those no longer ours are skipped
	next      int              // out[:next] is sent or skipped
	inWrite   []frame          // what the running Write carries
	pending   map[uint64]*call // possibly sent and unanswered, by owner
	load      int              // calls in out and pending
	acquires  int              // of them, acquires
	cancels   []uint64         // owners to cancel
	pingDue   bool
	pingOwner uint64
	pingAt    time.Duration // of an unanswered ping; 0 = none
	lastRead  time.Duration
	timer           // of the health check
	answered  bool  // by any reply since the greeting
	avoided   bool  // overdue: nothing new goes here until it answers
	draining  bool  // not the leader, or replaced: ends when it owes nothing
	err       error // why it has ended; nil while it lives
}

// frame is where a call's request begins in a written buffer.
type frame struct {
	off int
	k   *call
}

// usable reports whether new calls may go here.
func (s *session) usable() bool { return s.err == nil && !s.avoided && !s.draining }

// add queues a call. Needs c.mu.
func (s *session) add(k *call, now time.Duration) {
	k.state, k.session = queued, s
	s.load++
	if k.op == wire.OpAcquire {
		s.acquires++
	}
	s.out = append(s.out, k)
	if s.timer.pos == 0 {
		s.lastRead = now // nothing was owed until now
		s.c.schedule(&s.timer, now+quietTime)
	}
	poke(s.wake)
}

// leave takes a call off the session's account. Needs c.mu.
func (s *session) leave(k *call) {
	k.session = nil
	s.load--
	if k.op == wire.OpAcquire {
		s.acquires--
	}
}

// drop forgets a possibly sent call; a late reply to it is ignored. Needs c.mu.
func (s *session) drop(k *call) {
	delete(s.pending, k.owner)
	s.leave(k)
}

// cancel asks the server to take an acquire out of its queue. Needs c.mu.
func (s *session) cancel(owner uint64) {
	s.cancels = append(s.cancels, owner)
	poke(s.wake)
}

// writeLoop is the session's writer. Whatever ends a session, it is this
// goroutine that settles its calls, because it alone knows what was sent.
func (s *session) writeLoop() {
	defer s.c.wg.Done()
	var buf []byte
	sent := 0
	for {
		<-s.wake
		// Others that are ready to run are about to queue requests: let them,
		// and one Write carries all.
		runtime.Gosched()
		for {
			var limit time.Duration
			var alive bool
			buf, limit, alive = s.encode(buf[:0])
			if !alive {
				s.finish(sent)
				return
			}
			if len(buf) == 0 {
				break
			}
			_ = s.conn.SetWriteDeadline(time.Now().Add(limit))
			n, err := s.conn.Write(buf)
			sent = n
			if err != nil || n < len(buf) {
				s.writeFailed(err)
			}
		}
	}
}

// encode takes what is due into buf and says how long its Write may take. This
// is the last moment before the bytes go: waits are recomputed and what is too
// late is not sent.
func (s *session) encode(buf []byte) (_ []byte, limit time.Duration, alive bool) {
	c := s.c
	c.mu.Lock()
	defer c.unlock()
	if s.err != nil {
		return buf, 0, false
	}
	clear(s.inWrite)
	s.inWrite = s.inWrite[:0]
	now := c.now()
	until := now + transport
	for s.next < len(s.out) && len(buf) < batchBytes {
		k := s.out[s.next]
		s.out[s.next] = nil
		s.next++
		if k.state != queued || k.session != s {
			continue
		}
		if now >= k.sendUntil() {
			kind, cause := c.notSent(k)
			c.settleUnsent(k, kind, cause)
			continue
		}
		off := len(buf)
		buf = k.append(buf, now)
		k.state, k.sentAt = possiblySent, now
		s.pending[k.owner] = k
		s.inWrite = append(s.inWrite, frame{off, k})
		until = min(until, k.sendUntil())
		if k.op != wire.OpAcquire && k.at > now+k.patience {
			c.schedule(&k.timer, now+k.patience) // it had waited for a session
		}
	}
	if s.next == len(s.out) {
		s.out, s.next = s.out[:0], 0
	}
	for _, owner := range s.cancels {
		buf, _ = wire.AppendRequest(buf, &wire.Request{Op: wire.OpCancel, Owner: owner})
	}
	s.cancels = s.cancels[:0]
	if s.pingDue {
		s.pingDue = false
		buf, _ = wire.AppendRequest(buf, &wire.Request{Op: wire.OpPing, Owner: s.pingOwner})
	}
	return buf, max(until-now, minWriteTime), true
}

// append encodes the call's request as of now. Its parts were checked before
// it was submitted, so it cannot be refused here.
func (k *call) append(buf []byte, now time.Duration) []byte {
	k.waitSent = k.wireWait(now)
	req := wire.Request{Op: k.op, Wait: k.waitSent, Lease: k.lease, Owner: k.owner, Token: k.token}
	req.Text = append(k.c.scratch[:0], k.key...) // guarded by c.mu like all of this
	buf, err := wire.AppendRequest(buf, &req)
	if err != nil {
		panic(fmt.Sprintf("holdfast client: unchecked request: %v", err))
	}
	return buf
}

// writeFailed ends the session, but reads what the server had already said.
func (s *session) writeFailed(err error) {
	if err == nil {
		err = errors.New("short write")
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(drainTime))
	s.c.mu.Lock()
	s.fail(fmt.Errorf("write to %s: %w", s.addr, err))
	s.c.unlock()
}

// fail marks the session as ended; the writer does the rest. Needs c.mu.
func (s *session) fail(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	s.c.unschedule(&s.timer)
	s.c.forget(s)
	poke(s.wake)
}

// abort ends the session at once and throws away what its socket has not sent
// yet, so that a request given up here does not arrive later. Needs c.mu.
func (s *session) abort(err error) {
	s.fail(fmt.Errorf("session with %s given up: %w", s.addr, err))
	if tcp, ok := s.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	s.c.later(func() { _ = s.raw.Close() })
}

// finish settles every call of an ended session: what the connection did not
// take moves on, what it may have sent is unknown unless it may be repeated.
// sent is how many bytes the last Write took.
func (s *session) finish(sent int) {
	c := s.c
	c.mu.Lock()
	now := c.now()
	s.unsend(sent)
	s.unqueue()
	c.pump(now)
	c.unlock()

	<-s.read // replies that came before the end still count
	_ = s.raw.Close()

	c.mu.Lock()
	now = c.now()
	for _, k := range s.pending {
		s.drop(k)
		switch {
		case k.op == wire.OpAcquire:
			cause := k.cause
			if cause == nil {
				cause = k.left
			}
			if cause == nil {
				cause = s.err
			}
			c.settleUnanswered(k, cause)
		default:
			k.repeat()
			c.enqueue(k)
		}
	}
	c.log.Debug("session ended", "addr", s.addr, "reason", s.err)
	c.pump(now)
	c.unlock()
}

// unsend takes back the calls of the last Write of which the connection took
// not one byte. Needs c.mu.
func (s *session) unsend(sent int) {
	for i := len(s.inWrite) - 1; i >= 0; i-- {
		f := s.inWrite[i]
		if f.off < sent {
			break
		}
		if k := f.k; k.state == possiblySent && k.session == s {
			s.drop(k)
			s.c.requeue(k)
		}
	}
	s.inWrite = nil
}

// unqueue takes back what was not sent. Needs c.mu.
func (s *session) unqueue() {
	for i := len(s.out) - 1; i >= s.next; i-- {
		if k := s.out[i]; k != nil && k.state == queued && k.session == s {
			s.leave(k)
			s.c.requeue(k)
		}
	}
	s.out, s.next = nil, 0
}
