package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// fate says what is known of a request that got no answer.
type fate struct {
	cause    error
	possible bool // it may have been received; otherwise it definitely was not
	settled  bool // its grant is known, and is being given back
}

func (f *fate) Error() string { return f.cause.Error() }
func (f *fate) Unwrap() error { return f.cause }

// errNoAnswer: the time for the answer has passed.
var errNoAnswer = errors.New("no answer in time")

// roundTrip submits k until it is answered, as long as it is definitely unsent:
// to another session when one fails, to the leader when a node says Moved, with
// the same owner and the same deadline. total is when waiting for the answer
// ends. An error is always a *fate.
func (c *Client) roundTrip(ctx context.Context, k *call, total time.Duration) (wire.Reply, error) {
	for tries := 0; ; tries++ {
		if err := c.pause(ctx, tries, k.until); err != nil {
			return wire.Reply{}, &fate{cause: err}
		}
		if err := ctx.Err(); err != nil {
			return wire.Reply{}, &fate{cause: err}
		}
		if c.cfg.now() >= k.until {
			return wire.Reply{}, &fate{cause: errExpired}
		}
		s, err := c.session(ctx, k.until)
		if err != nil {
			return wire.Reply{}, &fate{cause: err}
		}
		if !s.submit(k) {
			c.forget(s, false)
			continue
		}
		r, err := c.await(ctx, k, total)
		switch {
		case err != nil:
			return r.reply, err
		case r.err == nil && r.reply.Op != wire.OpMoved:
			return r.reply, nil
		case r.err == nil || r.unsent && !r.final:
			continue // definitely not executed: once more, elsewhere
		default:
			return wire.Reply{}, &fate{cause: r.err, possible: !r.unsent}
		}
	}
}

// pause keeps a request that is sent from node to node from spinning.
func (c *Client) pause(ctx context.Context, tries int, until time.Duration) error {
	if tries < 2 {
		return nil
	}
	t := time.NewTimer(min(jitter(tries-1), max(until-c.cfg.now(), 0)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// await waits for the result of the call's submission. When ctx ends or the
// time is up, a call that was not sent is withdrawn; what is done about one
// that may have been is up to giveUp.
func (c *Client) await(ctx context.Context, k *call, total time.Duration) (result, error) {
	timer, _ := c.timers.Get().(*time.Timer)
	if timer == nil {
		timer = time.NewTimer(time.Hour)
	}
	defer c.timers.Put(timer)
	defer timer.Stop()
	timer.Reset(max(k.until-c.cfg.now(), 0))
	for {
		select {
		case r := <-k.res:
			return r, nil
		case <-ctx.Done():
			if k.sess.withdraw(k) {
				return result{}, &fate{cause: ctx.Err()}
			}
			return c.giveUp(k, ctx.Err(), min(cancelGrace, total-c.cfg.now()))
		case <-timer.C:
			if k.sess.withdraw(k) {
				return result{}, &fate{cause: errExpired}
			}
			if left := total - c.cfg.now(); left > 0 {
				timer.Reset(left)
				continue
			}
			return c.giveUp(k, errNoAnswer, 0)
		}
	}
}

// giveUp ends the wait for a call that may have been sent. An acquire must not
// stay behind: it is cancelled, when there is a grace for that, and its exact
// session is closed when that is not answered. Anything else is harmless; a
// session that has been silent since it was sent only gets no further calls.
func (c *Client) giveUp(k *call, cause error, grace time.Duration) (result, error) {
	s := k.sess
	if k.op != wire.OpAcquire {
		if !s.abandon(k) {
			return <-k.res, nil
		}
		if grace <= 0 {
			s.retire(k.sentAt)
		}
		return result{}, &fate{cause: cause, possible: true}
	}
	if grace > 0 {
		s.cancel(k.owner)
		patience := time.NewTimer(grace)
		defer patience.Stop()
		select {
		case r := <-k.res:
			return c.settled(k, r, cause)
		case <-patience.C:
		}
	}
	if !s.abandon(k) { // answered in time, or the session has failed: it may stay
		return c.settled(k, <-k.res, cause)
	}
	s.close(fmt.Errorf("session with %s closed: acquire of %q: %w", s.addr, k.key, cause))
	return result{}, &fate{cause: cause, possible: true}
}

// settled classifies what became of an acquire that its caller gave up.
func (c *Client) settled(k *call, r result, cause error) (result, error) {
	switch {
	case r.err != nil:
		return result{}, &fate{cause: cause, possible: !r.unsent}
	case r.reply.Op == wire.OpAcquired:
		c.giveBack(k.key, r.reply.Token)
		return result{}, &fate{cause: cause, possible: true, settled: true}
	case r.reply.Op == wire.OpMoved || errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded):
		return result{}, &fate{cause: cause} // definitely not granted
	default:
		return r, nil // Timeout and Busy stay what they are
	}
}

// retire keeps a session that has been silent since then from getting further
// calls.
func (s *session) retire(since time.Duration) {
	s.mu.Lock()
	silent := s.lastRead < since
	s.retired = s.retired || silent
	s.mu.Unlock()
	if silent {
		s.c.forget(s, false)
	}
}

// idempotent repeats a request that is harmless to repeat until it is answered
// or the time total has come. make returns the request anew for each try;
// maybe says whether an earlier try may have been executed.
func (c *Client) idempotent(ctx context.Context, k call, total time.Duration, each time.Duration) (reply wire.Reply, sentAt time.Duration, maybe bool, err error) {
	for tries := 0; ; tries++ {
		try := k
		try.owner, try.res = newOwner(), make(chan result, 1)
		now := c.cfg.now()
		try.until = min(total, now+each)
		reply, err = c.roundTrip(ctx, &try, try.until)
		if err == nil {
			return reply, try.sentAt, maybe, nil
		}
		var f *fate
		if errors.As(err, &f) && f.possible {
			maybe = true
		}
		if ctx.Err() != nil || errors.Is(err, ErrClosed) || c.cfg.now() >= total {
			return reply, 0, maybe, err
		}
		if perr := c.pause(ctx, tries+1, total); perr != nil {
			return reply, 0, maybe, err
		}
	}
}
