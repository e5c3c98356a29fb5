package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// arm schedules what the lock has to do next. Needs c.mu.
func (l *Lock) arm() {
	at := l.end
	if l.renews && l.keep == nil {
		at = min(at, l.next)
	}
	if l.early != nil {
		at = min(at, l.end-earlyBy(l.Lease()))
	}
	l.c.schedule(&l.timer, at)
}

// alarm renews the lock, warns of its end, or ends it.
func (l *Lock) alarm(now time.Duration) {
	if l.look(now); l.state != held {
		return
	}
	if l.early != nil && now >= l.end-earlyBy(l.Lease()) {
		l.c.later(l.early)
		l.early = nil
	}
	if l.renews && l.keep == nil && now >= l.next {
		l.keep = l.renewal(now, l.end, l.renewed)
		l.c.submit(l.keep)
	}
	if l.state == held {
		l.arm()
	}
}

// renewal makes a keep of this lock.
func (l *Lock) renewal(now, deadline time.Duration, then func(*call)) *call {
	return &call{
		op: wire.OpKeep, key: l.key, owner: newOwner(), token: l.token, lease: l.lease,
		start: now, deadline: deadline, patience: patienceFor(l.Lease()), then: then,
	}
}

// renewed takes the outcome of a background renewal. Needs c.mu.
func (l *Lock) renewed(k *call) {
	l.keep = nil
	if l.state != held {
		return
	}
	now := l.c.now()
	l.kept(k, now)
	if l.state != held {
		return
	}
	if k.kind != nil {
		// The call itself has tried every way until its deadline, or was refused.
		l.next = now + patienceFor(l.Lease())/2 + rand.N(patienceFor(l.Lease())/2)
		l.c.log.Warn("lock not renewed", "key", l.key, "token", l.token, "err", k.kind, "cause", k.cause)
	}
	l.arm()
}

// kept applies the outcome of any keep of this lock. Needs c.mu.
func (l *Lock) kept(k *call, now time.Duration) {
	if l.look(now); l.state != held {
		return // an answer after the end does not bring a lock back
	}
	switch {
	case k.kind == nil:
		l.end = max(l.end, k.sentAt+l.Lease()-margin(l.Lease()))
		l.next = max(l.next, k.sentAt+l.Lease()/3)
	case errors.Is(k.kind, ErrNotHeld):
		l.lose(errNotHolder)
	}
}

// Keep renews the lease now: it begins anew. ErrNotHeld means that the lock is
// over, and it then counts as lost. After ErrUnavailable (nothing was sent),
// ErrIndeterminate (it may have been renewed), ErrRefused or ctx's error the lock
// stays as it was. Keep gives up at the lock's end.
func (l *Lock) Keep(ctx context.Context) error {
	c := l.c
	c.mu.Lock()
	now := c.now()
	if l.look(now); l.state != held {
		defer c.unlock()
		return l.notHeld("keep")
	}
	k := l.renewal(now, l.end, nil)
	k.done = make(chan struct{})
	k.then = func(k *call) {
		if l.state == held {
			if l.kept(k, c.now()); l.state == held {
				l.arm()
			}
		}
	}
	c.submit(k)
	c.unlock()
	err := c.await(ctx, k)
	if err == nil {
		c.mu.Lock()
		defer c.unlock()
		if l.state == lost { // the answer came after the end
			return l.notHeld("keep")
		}
	}
	return err
}
