package frontend

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// readChunk is how many requests that have already arrived are handed to the
// sequencer in one message.
const readChunk = 128

// request is one decoded request on its way to the sequencer.
type request struct {
	op     wire.Op
	wait   uint8
	lease  uint8
	owner  uint64
	token  uint64
	key    string
	readAt time.Duration // monotonic time at which it was read
}

// inbound is what one read of one session brought.
type inbound struct {
	sess *session
	reqs []request
}

// session is one client connection. Its reader goroutine decodes requests and
// ends the session; the sequencer decides them; the outbox writes the replies.
type session struct {
	srv   *Server
	conn  net.Conn
	addr  string
	out   *outbox
	read  *wire.RequestReader
	label atomic.Pointer[string] // from the hello

	// Requests read and not yet answered; the reader waits for room.
	flow     sync.Mutex
	room     sync.Cond
	inflight int
	gone     bool // the session is ending: nobody waits for room

	movedAt   atomic.Int64 // unix nanoseconds of the first Moved; 0 = none
	greeted   bool         // owned by the reader: a whole frame has come
	frameFrom time.Time    // owned by the reader: when the unfinished frame began

	// Owned by the sequencer.
	waiters map[uint64]*waiter // queued acquires by owner, chained
	dirty   bool               // has unflushed output
	closed  bool               // ended: nothing reaches it any more
}

func newSession(srv *Server, conn net.Conn) *session {
	s := &session{srv: srv, conn: conn, addr: conn.RemoteAddr().String()}
	s.out = newOutbox(conn, srv.cfg.WriteBufferBytes, srv.cfg.WriteTimeout)
	s.read = wire.NewRequestReader(sessionReader{s})
	s.room.L = &s.flow
	empty := ""
	s.label.Store(&empty)
	return s
}

// run reads until the session ends, then closes it and tells the sequencer.
func (s *session) run() {
	err := s.readLoop()
	if err == nil || s.movedAt.Load() != 0 {
		s.closePolitely()
	}
	s.flow.Lock()
	s.gone = true
	s.room.Broadcast()
	s.flow.Unlock()
	lost := s.out.shut()
	s.srv.sessionEnded(s, lost)
}

// readLoop returns nil when the last thing to say is in the outbox and the
// session should close politely, and an error when the connection is of no use.
func (s *session) readLoop() error {
	for {
		in := s.srv.inbounds.Get().(*inbound)
		in.sess, in.reqs = s, in.reqs[:0]
		err := s.readSome(in)
		if len(in.reqs) > 0 {
			if !s.srv.deliver(in) {
				return io.ErrClosedPipe
			}
		} else {
			s.srv.inbounds.Put(in)
		}
		if err != nil {
			var refusal *wire.Refusal
			if errors.As(err, &refusal) {
				return nil
			}
			return err
		}
		s.out.flush()
	}
}

// readSome fills in with one request, waiting for it, and with those that have
// already arrived behind it.
func (s *session) readSome(in *inbound) error {
	for len(in.reqs) == 0 || (s.read.Buffered() && len(in.reqs) < readChunk) {
		var req wire.Request
		err := s.read.Read(&req)
		s.frameFrom = time.Time{}
		var refusal *wire.Refusal
		switch {
		case errors.As(err, &refusal):
			s.refuse(refusal)
			if refusal.Fatal {
				return refusal
			}
			s.greeted = true
			if len(in.reqs) == 0 && !s.read.Buffered() {
				s.out.flush()
			}
			continue
		case err != nil:
			return err
		}
		if req.Op == wire.OpHello {
			if refusal := s.hello(&req); refusal != nil {
				return refusal
			}
			if len(in.reqs) == 0 && !s.read.Buffered() {
				s.out.flush()
			}
			continue
		}
		s.greeted = true
		if req.Op != wire.OpCancel && !s.takeRoom(len(in.reqs) == 0) {
			// No room: what is here goes on first, or its answers never come.
			if len(in.reqs) > 0 && !s.srv.deliverPart(in) {
				return io.ErrClosedPipe
			}
			if !s.takeRoom(true) {
				return net.ErrClosed
			}
		}
		in.reqs = append(in.reqs, request{
			op: req.Op, wait: req.Wait, lease: req.Lease, owner: req.Owner, token: req.Token,
			key: string(req.Text), readAt: s.srv.mono(),
		})
	}
	return nil
}

// hello answers the optional first frame and keeps the label operators see.
func (s *session) hello(req *wire.Request) *wire.Refusal {
	if s.greeted {
		r := &wire.Refusal{Code: wire.CodeLateHello, Owner: req.Owner, Reason: "hello must be the first frame of a session", Fatal: true}
		s.refuse(r)
		return r
	}
	s.greeted = true
	label := string(req.Text)
	s.label.Store(&label)
	s.out.put(&wire.Reply{Op: wire.OpHelloOK, Version: wire.Version, Owner: req.Owner}, grantRef{})
	return nil
}

func (s *session) refuse(r *wire.Refusal) {
	s.srv.stats.refused.Add(1)
	if !s.out.put(&wire.Reply{Op: wire.OpRefused, Code: r.Code, Owner: r.Owner, Text: []byte(r.Reason)}, grantRef{}) {
		s.abort() // it sends rubbish and does not read what is said of it
	}
}

// takeRoom counts one more unanswered request. Without wait it reports false
// when the session is at its bound; with wait it waits for an answer to leave,
// and reports false only when the session ends.
func (s *session) takeRoom(wait bool) bool {
	s.flow.Lock()
	defer s.flow.Unlock()
	for s.inflight >= s.srv.cfg.MaxInflightPerSession && !s.gone {
		if !wait {
			return false
		}
		s.room.Wait()
	}
	if s.gone {
		return false
	}
	s.inflight++
	return true
}

// giveRoom counts one request answered.
func (s *session) giveRoom() {
	s.flow.Lock()
	s.inflight--
	s.room.Signal()
	s.flow.Unlock()
}

// abort ends the session without another word: its unanswered requests stay
// unknown to the client. Safe from any goroutine.
func (s *session) abort() {
	s.flow.Lock()
	s.gone = true
	s.room.Broadcast()
	s.flow.Unlock()
	_ = s.conn.Close()
}

// move starts the grace after which a session that was told Moved is closed.
func (s *session) move() {
	if s.movedAt.CompareAndSwap(0, time.Now().UnixNano()) {
		_ = s.conn.SetReadDeadline(time.Now().Add(s.srv.cfg.CloseGrace))
	}
}

// closePolitely writes what is left, shuts down our writing side and reads on
// for a short while, so that the last replies are not lost to a reset.
func (s *session) closePolitely() {
	s.out.drain()
	half, ok := s.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(s.srv.cfg.CloseGrace))
	_, _ = io.Copy(io.Discard, s.conn)
}

// sessionReader sets the deadline that fits before each read of the socket:
// none while idle, one for the first frame, one for the rest of a frame that
// has begun (from its first byte, so that dribbling does not extend it), and
// the grace after a Moved.
type sessionReader struct{ s *session }

func (r sessionReader) Read(p []byte) (int, error) {
	s := r.s
	if err := s.conn.SetReadDeadline(s.readDeadline()); err != nil {
		return 0, err
	}
	// move may have set its deadline just before ours: look again after.
	if at := s.movedAt.Load(); at != 0 {
		_ = s.conn.SetReadDeadline(time.Unix(0, at).Add(s.srv.cfg.CloseGrace))
	}
	return s.conn.Read(p)
}

func (s *session) readDeadline() time.Time {
	if s.read.Partial() {
		if s.frameFrom.IsZero() {
			s.frameFrom = time.Now()
		}
		return s.frameFrom.Add(s.srv.cfg.FrameTimeout)
	}
	if !s.greeted {
		return time.Now().Add(s.srv.cfg.FirstFrameTimeout)
	}
	return time.Time{}
}
