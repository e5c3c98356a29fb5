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

	// Requests read whose answer has not left; the reader waits for room.
	flow     sync.Mutex
	room     sync.Cond
	inflight int
	gone     bool // the session is ending: nobody waits for room

	movedAt   atomic.Int64 // unix nanoseconds of the first Moved; 0 = none
	in        *inbound     // owned by the reader: requests to hand on; nil if none
	greeted   bool         // owned by the reader: a whole frame has come
	frameFrom time.Time    // owned by the reader: when the unfinished frame began

	// Owned by the sequencer.
	waiters map[uint64]*waiter // queued acquires by owner, chained
	dirty   bool               // has unflushed output
	closed  bool               // ended: nothing reaches it any more
}

func newSession(srv *Server, conn net.Conn) *session {
	s := &session{srv: srv, conn: conn, addr: conn.RemoteAddr().String()}
	s.out = newOutbox(conn, srv.cfg.WriteBufferBytes, srv.cfg.WriteTimeout, s.giveRoom, s.abort)
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
		err := s.readSome()
		if !s.handOn() {
			return io.ErrClosedPipe
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

// handOn delivers the requests read so far; false means that the server stops.
func (s *session) handOn() bool {
	in := s.in
	s.in = nil
	return in == nil || s.srv.deliver(in)
}

// readSome reads one request, waiting for it, and those that have already
// arrived behind it. A session that waits holds no room for requests.
func (s *session) readSome() error {
	for s.in == nil || (s.read.Buffered() && len(s.in.reqs) < readChunk) {
		var req wire.Request
		err := s.read.Read(&req)
		s.frameFrom = time.Time{}
		var refusal *wire.Refusal
		switch {
		case errors.As(err, &refusal):
			s.greeted = true
			if err := s.refuse(refusal); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if req.Op == wire.OpHello {
			if err := s.hello(&req); err != nil {
				return err
			}
			continue
		}
		s.greeted = true
		if req.Op != wire.OpCancel && !s.needRoom() {
			return net.ErrClosed
		}
		if s.in == nil {
			s.in = s.srv.inbounds.Get().(*inbound)
			s.in.sess, s.in.reqs = s, s.in.reqs[:0]
		}
		s.in.reqs = append(s.in.reqs, request{
			op: req.Op, wait: req.Wait, lease: req.Lease, owner: req.Owner, token: req.Token,
			key: string(req.Text), readAt: s.srv.mono(),
		})
	}
	return nil
}

// hello answers the optional first frame and keeps the label operators see.
func (s *session) hello(req *wire.Request) error {
	if s.greeted {
		return s.refuse(&wire.Refusal{Code: wire.CodeLateHello, Owner: req.Owner, Reason: "hello must be the first frame of a session", Fatal: true})
	}
	s.greeted = true
	label := string(req.Text)
	s.label.Store(&label)
	s.out.put(&wire.Reply{Op: wire.OpHelloOK, Version: wire.Version, Owner: req.Owner}, grantRef{})
	s.flushIfIdle()
	return nil
}

// refuse answers bad input, and returns r where the session ends with it.
func (s *session) refuse(r *wire.Refusal) error {
	s.srv.stats.refused.Add(1)
	if !s.needRoom() || !s.out.put(&wire.Reply{Op: wire.OpRefused, Code: r.Code, Owner: r.Owner, Text: []byte(r.Reason)}, grantRef{}) {
		return net.ErrClosed
	}
	if r.Fatal {
		return r
	}
	s.flushIfIdle()
	return nil
}

// flushIfIdle writes the reader's own replies before it waits for input.
func (s *session) flushIfIdle() {
	if s.in == nil && !s.read.Buffered() {
		s.out.flush()
	}
}

// needRoom waits for room for one more unanswered request; false means that the
// session ends. What has been read goes on first, or its answers never come.
func (s *session) needRoom() bool {
	if s.takeRoom(false) {
		return true
	}
	if !s.handOn() {
		return false
	}
	s.out.flush()
	return s.takeRoom(true)
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

// giveRoom counts n requests whose answer has left or never will.
func (s *session) giveRoom(n int) {
	s.flow.Lock()
	s.inflight -= n
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
	cut(s.conn)
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
