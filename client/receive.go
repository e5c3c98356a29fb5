package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// replyBatch is how many replies that are already here are dealt with in one go.
const replyBatch = 256

// readLoop is the session's reader.
func (s *session) readLoop(r *wire.ReplyReader) {
	defer s.c.wg.Done()
	defer close(s.read)
	for {
		var reply wire.Reply
		err := r.Read(&reply)
		s.c.mu.Lock()
		if err == nil {
			err = s.receive(r, &reply)
		}
		if err != nil && s.err == nil {
			s.fail(fmt.Errorf("session with %s: %w", s.addr, err))
			s.c.later(func() { _ = s.raw.Close() }) // a Write may be stuck
		}
		s.c.unlock()
		if err != nil {
			return
		}
	}
}

// receive deals with one reply and with those that are here already. Needs c.mu.
func (s *session) receive(r *wire.ReplyReader, reply *wire.Reply) error {
	c := s.c
	now := c.now()
	s.lastRead, s.pingAt = now, 0
	recovered := s.avoided
	s.avoided = false
	for n := 1; ; n++ {
		if err := s.dispatch(reply, now); err != nil {
			return err
		}
		if n == replyBatch || !r.Buffered() {
			break
		}
		if err := r.Read(reply); err != nil {
			return err
		}
	}
	if s.draining && s.load == 0 && s.err == nil {
		s.fail(errDrained)
		c.later(func() { _ = s.raw.Close() })
	}
	if recovered || c.waiting.n+c.urgent.n > 0 {
		c.pump(now)
	}
	return nil
}

// dispatch gives one reply to its call. An error is a violation of the
// protocol, or the server's refusal of the whole session.
func (s *session) dispatch(reply *wire.Reply, now time.Duration) error {
	k := s.pending[reply.Owner]
	if k == nil {
		switch {
		case reply.Op == wire.OpRefused && reply.Owner == 0:
			return fmt.Errorf("server refused the session: %s: %s", reply.Code, reply.Text)
		case reply.Op == wire.OpMoved:
			s.moved(string(reply.Text), now)
		}
		return nil // of a ping, or of a call that was given up
	}
	if !answers(k.op, reply.Op) {
		return fmt.Errorf("server answered %s with %q", opName(k.op), byte(reply.Op))
	}
	c := s.c
	s.drop(k)
	if !s.answered && reply.Op != wire.OpMoved {
		s.answered = true
		c.proven(s.addr)
	}
	switch reply.Op {
	case wire.OpMoved:
		s.moved(string(reply.Text), now)
		s.redirect(k)
	case wire.OpRefused:
		c.settle(k, ErrRefused, refusal(reply))
	case wire.OpAcquired:
		k.state, k.reply = granted, *reply
		k.reply.Text = nil
		switch {
		case k.left != nil:
			c.tooLate(k, k.left)
		case now >= k.deadline:
			c.tooLate(k, errLateGrant)
		default:
			k.tell() // the gate is where the caller collects it
		}
	case wire.OpTimeout:
		c.settleUngranted(k, ErrTimeout)
	case wire.OpBusy:
		c.settleUngranted(k, ErrBusy)
	case wire.OpNotHeld:
		c.settle(k, ErrNotHeld, nil)
	default: // R, K, S, P
		k.reply = *reply
		k.reply.Text = nil
		c.settle(k, nil, nil)
	}
	return nil
}

// settleUngranted ends an acquire that was definitely not granted.
func (c *Client) settleUngranted(k *call, kind error) {
	if k.left != nil {
		kind = k.left
	}
	c.settle(k, kind, nil)
}

// redirect sends a call that was definitely not executed to the leader, with
// its owner and its deadline. Needs c.mu.
func (s *session) redirect(k *call) {
	k.hops++
	if k.hops > maxHops {
		s.c.settleUnsent(k, ErrUnavailable, errors.New("redirected too often"))
		return
	}
	s.c.enqueue(k)
}

// moved deals with the news that the server does not lead. Needs c.mu.
func (s *session) moved(leader string, now time.Duration) {
	c := s.c
	if !s.draining {
		c.failed(s.addr, &movedError{leader}, now)
	}
	for _, t := range c.sessions {
		if t.addr == s.addr && !t.draining {
			t.draining = true
			t.unqueue()
			c.schedule(&t.timer, now) // it may owe nothing
		}
	}
	c.hint(leader, s.addr, now)
	if c.waiting.n+c.urgent.n > 0 {
		c.pump(now)
	}
}

// suspect makes calls avoid the session until it answers. Needs c.mu.
func (s *session) suspect(now time.Duration) {
	if s.err != nil || s.avoided {
		return
	}
	s.avoided = true
	s.unqueue()
	if s.pingAt == 0 {
		s.ping(now)
	}
}

func (s *session) ping(now time.Duration) {
	s.pingAt, s.pingDue = now, true
	poke(s.wake)
	s.c.schedule(&s.timer, now+suspectTime)
}

// alarm is the health check of a session that owes answers.
func (s *session) alarm(now time.Duration) {
	late := now - s.timer.at
	switch {
	case s.err != nil || s.load == 0 && s.pingAt == 0:
		if s.err == nil && s.draining {
			s.fail(errDrained)
			s.c.later(func() { _ = s.raw.Close() })
		}
	case s.pingAt == 0 && now-s.lastRead < quietTime:
		s.c.schedule(&s.timer, s.lastRead+quietTime)
	case s.pingAt == 0:
		s.ping(now)
	case late > suspectTime/2:
		// We slept, not the server: its answers may be waiting to be read.
		s.pingAt += late
		s.c.schedule(&s.timer, now+suspectTime)
	case now-s.pingAt < deadTime:
		s.suspect(now)
		s.c.pump(now)
		s.c.schedule(&s.timer, s.pingAt+deadTime)
	default:
		s.abort(fmt.Errorf("%w for %v", errSilent, (now - s.lastRead).Round(time.Millisecond)))
	}
}

// answers reports whether reply may answer op.
func answers(op, reply wire.Op) bool {
	switch reply {
	case wire.OpMoved, wire.OpRefused:
		return true
	case wire.OpAcquired, wire.OpTimeout, wire.OpBusy:
		return op == wire.OpAcquire
	case wire.OpReleased: // R
		return op == wire.OpRelease
	case wire.OpKept: // K
		return op == wire.OpKeep
	case wire.OpNotHeld:
		return op == wire.OpRelease || op == wire.OpKeep
	case wire.OpState:
		return op == wire.OpQuery
	case wire.OpPong: // P
		return op == wire.OpPing
	}
	return false
}

func opName(op wire.Op) string {
	switch op {
	case wire.OpAcquire:
		return "acquire"
	case wire.OpRelease:
		return "release"
	case wire.OpKeep:
		return "keep"
	case wire.OpQuery:
		return "query"
	}
	return "ping"
}
