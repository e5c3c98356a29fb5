package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// Lock is one grant. It is renewed in the background every third of its lease
// until it is released or lost. Its methods may be called from any goroutine.
type Lock struct {
	c      *Client
	key    string
	token  uint64
	owner  uint64
	lease  time.Duration
	renews bool
	lost   chan struct{}

	mu      sync.Mutex
	end     time.Duration // conservative end of the lease on the client's clock
	over    error         // ErrReleased, ErrLost or ErrClosed; nil while held
	why     error         // detail of over
	ctx     context.Context
	cancel  context.CancelCauseFunc
	renewAt time.Duration // owned by the renewer: when the next renewal is due
	busy    bool          // a renewal is under way
	pos     int           // the renewer's heap; -1 = not in it
}

// Key is the key that is held.
func (l *Lock) Key() string { return l.key }

// Token is the fencing token: it rises with each grant of any key. Hand it to
// what the lock protects, so that late writers can be turned away.
func (l *Lock) Token() uint64 { return l.token }

// Owner is the correlation number of the acquire that got this grant, as
// operators see it. It is no authority over anything.
func (l *Lock) Owner() uint64 { return l.owner }

// Lease is how long the servers protect the lock after its latest renewal.
func (l *Lock) Lease() time.Duration { return l.lease }

// margin is how long before its conservative end a lock counts as lost: room
// for timers that fire late and for the holder to stop.
func margin(lease time.Duration) time.Duration { return min(lease/10, 500*time.Millisecond) }

// safeEnd is when the lock counts as lost. The caller owns l or holds l.mu.
func (l *Lock) safeEnd() time.Duration { return l.end - margin(l.lease) }

// Expires is when the client stops believing in the lock unless it is renewed
// before. It lies before the time at which the servers may grant it to another.
func (l *Lock) Expires() time.Time {
	l.mu.Lock()
	left := l.safeEnd() - l.c.cfg.now()
	l.mu.Unlock()
	return time.Now().Add(left)
}

// Lost is closed when the lock is not known to be held any longer: its lease
// ran out without a renewal, the servers say that it is over, or the client was
// closed. It is not closed by Release.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Err is nil while the lock is held, ErrReleased after Release, and otherwise
// ErrLost or ErrClosed. Unlike Lost it reads the clock, so it is right at once
// in a process that has been frozen.
func (l *Lock) Err() error {
	l.mu.Lock()
	over, expired := l.over, l.over == nil && l.c.cfg.now() >= l.safeEnd()
	l.mu.Unlock()
	if expired {
		l.finish(ErrLost, true)
		return ErrLost
	}
	return over
}

// Context ends when the lock is lost or released; context.Cause tells which.
func (l *Lock) Context() context.Context {
	_ = l.Err() // a lock that has run out must not give a live context
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.Background())
		if l.over != nil {
			l.cancel(l.over)
		}
	}
	return l.ctx
}

// finish ends the lock once; it reports false when it was over already.
func (l *Lock) finish(over error, lost bool) bool {
	l.mu.Lock()
	if l.over != nil {
		l.mu.Unlock()
		return false
	}
	l.over = over
	if lost {
		close(l.lost)
	}
	if l.cancel != nil {
		l.cancel(over)
	}
	l.mu.Unlock()
	l.c.drop(l)
	return true
}

// lose ends the lock for a reason other than Release.
func (l *Lock) lose(why error) {
	if l.finish(ErrLost, true) {
		l.c.cfg.log.Warn("lock lost", "key", l.key, "token", l.token, "why", why)
	}
}

// Keep renews the lease now: it begins anew. ErrNotHeld means that the lock is
// over, and it then counts as lost; ErrUnavailable that nothing was sent and
// ErrIndeterminate that the renewal may have been made: the lock then stays as
// it was. Without a deadline in ctx it gives up at the lock's end.
func (l *Lock) Keep(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return &Error{Op: "keep", Key: l.key, Kind: ErrNotHeld, Cause: err}
	}
	l.mu.Lock()
	total := l.safeEnd()
	l.mu.Unlock()
	return l.keep(ctx, total)
}

func (l *Lock) keep(ctx context.Context, total time.Duration) error {
	k := call{op: wire.OpKeep, key: l.key, token: l.token, lease: wholeSeconds(l.lease)}
	reply, sentAt, maybe, err := l.c.idempotent(ctx, k, total, max(l.lease/6, 200*time.Millisecond))
	switch {
	case err != nil:
		return unanswered("keep", l.key, maybe, err)
	case reply.Op == wire.OpKept:
		l.mu.Lock()
		l.end = max(l.end, sentAt+l.lease)
		l.mu.Unlock()
		return nil
	case reply.Op == wire.OpNotHeld:
		l.lose(fmt.Errorf("the servers say that token %d is not the holder", l.token))
		return &Error{Op: "keep", Key: l.key, Kind: ErrNotHeld}
	case reply.Op == wire.OpRefused:
		return refused("keep", l.key, &reply)
	}
	return &Error{Op: "keep", Key: l.key, Kind: ErrIndeterminate, Cause: fmt.Errorf("unexpected reply %q", reply.Op)}
}

// Release gives the lock back and ends its Context. It tries for 5 s, or until
// ctx ends; it then goes on in the background, so that a deferred Release frees
// the key also where ctx has ended before.
//
// nil: this call ended the grant. ErrNotHeld: the lock was over already, lost or
// released. ErrUnavailable: nobody could be told; ErrIndeterminate: somebody may
// have been; in both cases the key is free at the latest when its lease ends.
func (l *Lock) Release(ctx context.Context) error {
	_ = l.Err() // a lock that has run out is lost, not released
	if !l.finish(ErrReleased, false) {
		l.mu.Lock()
		over := l.over
		l.mu.Unlock()
		if over == ErrLost { //nolint:errorlint // our own sentinel, never wrapped
			l.c.giveBack(l.key, l.token) // the servers may protect it for a moment more
		}
		return &Error{Op: "release", Key: l.key, Kind: ErrNotHeld, Cause: over}
	}
	maybe, err := l.c.release(ctx, l.key, l.token)
	if err != nil && ctx.Err() != nil {
		l.c.giveBack(l.key, l.token)
	}
	if err != nil && maybe {
		// Not held, after an earlier try that may have arrived: within the
		// lease nobody but us could have ended the grant.
		l.mu.Lock()
		inTime := l.c.cfg.now() < l.end
		l.mu.Unlock()
		if e, ok := err.(*Error); ok && e.Kind == ErrNotHeld && inTime { //nolint:errorlint // made by release just now
			return nil
		}
	}
	return err
}
