package client

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

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
		s.wrote(sent, n, err)
		if err != nil {
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
	s.writes++
	for i, k := range s.queue {
		s.queue[i] = nil
		if now >= k.until {
			k.res <- result{err: errExpired, unsent: true, final: true}
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
			k.res <- result{err: err, unsent: true, final: true}
			continue
		}
		sent = append(sent, sentCall{len(buf), k})
		buf = next
		k.sentAt, k.write = now, s.writes
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
	s.writing = len(buf) > 0
	return buf, sent
}

// wrote settles the calls of a Write that failed, or during which the session
// was closed: those of which the connection took not one byte were definitely
// not sent, and only the Write itself knows which these are.
func (s *session) wrote(sent []sentCall, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = false
	if err == nil && !s.closed {
		return
	}
	for _, c := range sent {
		if s.pending[c.k.owner] != c.k {
			continue
		}
		switch {
		case err != nil && c.off >= n:
			delete(s.pending, c.k.owner)
			c.k.res <- result{err: err, unsent: true}
		case s.closed:
			delete(s.pending, c.k.owner)
			c.k.res <- result{err: s.cause}
		}
	}
}
