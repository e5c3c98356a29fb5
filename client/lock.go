package client

import (
	"context"
	"errors"
	"time"
)

type lockState uint8

const (
	held lockState = iota
	released
	lost
)

// Lock is one grant. It is renewed in the background every third of its lease
// until it is released or lost, so it must be released even when it is not needed
// any more. Its methods may be called from any goroutine.
type Lock struct {
	c     *Client
	key   string
	token uint64
	owner uint64
	lease uint8 // seconds

	// Guarded by Client.mu.
	timer                // of the renewal and of the end
	state  lockState     //
	over   error         // why it is not held: ErrReleased, ErrClosed or ErrLost
	detail error         // of ErrLost
	end    time.Duration // when the client stops believing
	renews bool
	next   time.Duration // of renewals
	keep   *call         // the renewal under way
	early  func()        // called once, shortly before the end
	lostCh chan struct{}
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// margin is how long before the conservative end of its lease a lock counts as
// lost: room for clocks that differ in speed, for timers that fire late and for the
// holder to stop.
func margin(lease time.Duration) time.Duration { return min(lease/10, 500*time.Millisecond) }

// earlyBy is how long before the end a function run by Do is told.
func earlyBy(lease time.Duration) time.Duration { return min(lease/5, 2*time.Second) }

// hold makes a lock of a grant. Needs c.mu.
func (c *Client) hold(k *call, end time.Duration) *Lock {
	l := &Lock{
		c: c, key: k.key, token: k.reply.Token, owner: k.owner, lease: k.lease, renews: k.renew, end: end,
		next: k.leaseEnd() - seconds(k.lease)*2/3,
	}
	l.what = l
	c.locks[l] = struct{}{}
	l.arm()
	return l
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
func (l *Lock) Lease() time.Duration { return seconds(l.lease) }

// Expires is when the client stops believing in the lock unless it is renewed
// before. It lies before the time at which the servers may grant it to another.
// Ask anew instead of keeping the answer: a time.Time does not count suspension.
func (l *Lock) Expires() time.Time {
	l.c.mu.Lock()
	left := l.end - l.c.now()
	if l.state != held {
		left = min(left, 0)
	}
	l.c.unlock()
	return time.Now().Add(left)
}

// Lost is closed when the lock is not known to be held any longer: its lease
// ran out without a renewal, the servers say that it is over, or the client was
// closed. It is not closed by Release.
func (l *Lock) Lost() <-chan struct{} {
	l.c.mu.Lock()
	defer l.c.unlock()
	if l.lostCh == nil {
		l.lostCh = make(chan struct{})
		if l.state == lost {
			close(l.lostCh)
		}
	}
	return l.lostCh
}

// Err is nil while the lock is held, ErrReleased after Release, and otherwise
// ErrLost or ErrClosed. Unlike Lost it reads the clock, so it is right at once
// in a process that has been frozen.
func (l *Lock) Err() error {
	l.c.mu.Lock()
	defer l.c.unlock()
	l.look(l.c.now())
	return l.over
}

// Context ends when the lock is lost or released; context.Cause tells which:
// ErrReleased, ErrLost or ErrClosed. It has no deadline, because renewals move
// the end.
func (l *Lock) Context() context.Context {
	l.c.mu.Lock()
	defer l.c.unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.Background())
		if l.state != held {
			cancel, over := l.cancel, l.over
			l.c.later(func() { cancel(over) })
		}
	}
	return l.ctx
}

// look loses a lock whose end has passed. Needs c.mu.
func (l *Lock) look(now time.Duration) {
	if l.state == held && now >= l.end {
		l.lose(errLeaseOver)
	}
}

// lose ends the lock because it can no longer be believed in. Needs c.mu.
func (l *Lock) lose(why error) {
	l.detail = why
	l.finish(ErrLost, true)
	l.c.log.Warn("lock lost", "key", l.key, "token", l.token, "reason", why)
}

// finish ends the lock, once. Needs c.mu.
func (l *Lock) finish(over error, isLost bool) {
	if l.state != held {
		return
	}
	c := l.c
	l.state, l.over = released, over
	if isLost {
		l.state = lost
		if l.lostCh != nil {
			close(l.lostCh)
		}
	}
	delete(c.locks, l)
	c.unschedule(&l.timer)
	if cancel := l.cancel; cancel != nil {
		c.later(func() { cancel(over) })
	}
	if early := l.early; early != nil && isLost {
		c.later(early)
	}
	l.early = nil
}

// warn has f called once when the lock nears its end, or is lost.
func (l *Lock) warn(f func()) {
	l.c.mu.Lock()
	defer l.c.unlock()
	if l.state != held {
		l.c.later(f)
		return
	}
	l.early = f
	l.arm()
}

// notHeld is the error of an operation on a lock that is over. Needs c.mu.
func (l *Lock) notHeld(op string) error {
	cause := l.over
	if l.detail != nil {
		cause = joined{l.over, l.detail}
	}
	return &Error{Op: op, Key: l.key, Kind: ErrNotHeld, Cause: cause}
}

// Release gives the lock back and ends its Context at once. It tries for 5 s,
// through whatever leader there is; when ctx ends first, Release returns and the
// trying goes on in the background.
//
// nil: the grant was ended by this call. ErrNotHeld: the lock was over before: lost
// or already released. ErrUnavailable: nothing was sent. ErrIndeterminate: it may
// have been released. In all cases the lock must not be believed in any more, and
// the key is free at the latest when its lease ends.
//
// A release may have to be repeated, and when the first try was executed but its
// answer was lost the second finds nothing to release. Within the lease only this
// call can have ended the grant, so that counts as nil; later it is ErrNotHeld,
// because the lease may have run out before.
func (l *Lock) Release(ctx context.Context) error {
	c := l.c
	c.mu.Lock()
	now := c.now()
	if l.look(now); l.state != held {
		err := l.notHeld("release")
		if l.state == lost && !errors.Is(l.detail, errNotHolder) && !c.closed {
			// The servers may protect it for a moment more; nobody needs that.
			l.detail = joined{l.detail, errNotHolder}
			c.giveBack(l.key, l.token, now+transport)
		}
		c.unlock()
		return err
	}
	protected := l.end
	l.finish(ErrReleased, false)
	k := c.releaseCall(l.key, l.token, now, now+transport)
	k.done = make(chan struct{})
	c.submit(k)
	c.unlock()
	err := c.await(ctx, k)
	if errors.Is(err, ErrNotHeld) {
		c.mu.Lock()
		defer c.unlock()
		if k.repeated && k.settledAt < protected {
			return nil
		}
	}
	return err
}
