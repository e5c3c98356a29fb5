package client

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// TryAcquire is Acquire with one immediate attempt, which never queues: a key
// that is held gives ErrTimeout. Looking for a leader may take up to 5 s.
func (c *Client) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lock, error) {
	return c.Acquire(ctx, key, append(opts[:len(opts):len(opts)], WithWait(0))...)
}

// Acquire waits for the key, in the order of arrival at the leader, and returns
// the lock. Each call is an attempt of its own: a key that this client holds
// already is waited for like any other.
//
// The errors, for errors.Is, are ErrTimeout, ErrBusy, ErrRefused, ErrUnavailable,
// ErrClosed and ctx's own error, which all mean that the lock was definitely not
// granted, and ErrIndeterminate, which means that it may have been: the caller
// must not enter the critical section, and Error.TakenUntil says how long the key
// may stay taken. It matches none of the others, whatever it was brought about by.
//
// The call takes no longer than its wait and 5 s for the transport, and ends
// within half a second after ctx.
func (c *Client) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lock, error) {
	a, err := newAcquireConfig(key, opts)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, &Error{Op: "acquire", Key: key, Kind: err}
	}
	k := c.startAcquire(key, &a)
	if k == nil {
		return nil, &Error{Op: "acquire", Key: key, Kind: ErrClosed}
	}
	select {
	case <-k.done:
	case <-ctx.Done():
		c.mu.Lock()
		c.leave(k, ctx.Err(), cancelGrace)
		c.unlock()
		<-k.done
	}
	return c.collect(ctx, k)
}

// startAcquire submits an acquire. Its call is the handle: one outcome, decided
// once. It returns nil when the client is closed.
func (c *Client) startAcquire(key string, a *acquireConfig) *call {
	now := c.now()
	k := &call{
		op: wire.OpAcquire, key: key, owner: newOwner(), immediate: a.wait == 0, renew: a.renew, lease: wholeSeconds(a.lease),
		start: now, horizon: now + a.wait, deadline: now + a.wait + transport, done: make(chan struct{}),
	}
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return nil
	}
	c.submit(k)
	return k
}

// collect is the delivery gate. Under the mutex it decides once between handing
// over a grant and the deadline (or the end of the context, or of the lease): a
// grant that comes too late is given back by its exact token, and the session
// that brought it goes on.
func (c *Client) collect(ctx context.Context, k *call) (*Lock, error) {
	c.mu.Lock()
	defer c.unlock()
	if k.state == granted {
		now := c.now()
		end := min(k.leaseEnd(), now+seconds(k.lease)) - margin(seconds(k.lease))
		switch {
		case ctx.Err() != nil:
			c.tooLate(k, ctx.Err())
		case now >= k.deadline || now >= end:
			c.tooLate(k, errLateGrant)
		case c.closed:
			c.tooLate(k, ErrClosed)
		default:
			c.settle(k, nil, nil)
			return c.hold(k, end), nil
		}
	}
	return nil, k.failure(c.now())
}

// leaseEnd is when the servers' protection ends at the earliest: the lease began
// waited_ms after the server had read the request, and that was after sentAt.
func (k *call) leaseEnd() time.Duration {
	return k.sentAt + time.Duration(k.reply.WaitedMS)*time.Millisecond + seconds(k.lease)
}

// tooLate gives back a grant that nobody will use. Needs c.mu.
func (c *Client) tooLate(k *call, why error) {
	k.until = k.leaseEnd()
	c.giveBack(k.key, k.reply.Token, k.until)
	c.settle(k, ErrIndeterminate, why)
}

// failure is a settled call's error.
func (k *call) failure(now time.Duration) error {
	e := newError(opName(k.op), k.key, k.kind, k.cause)
	if k.until > 0 && errors.Is(k.kind, ErrIndeterminate) {
		e.TakenUntil = time.Now().Add(k.until - now)
	}
	return e
}

// Do runs f while holding key. f's context ends when ctx does, and when the lock
// comes near its end without having been renewed, early enough for f to stop: a
// fifth of the lease before, at most 2 s. Do waits for f to return, however long
// that takes, and only then releases.
//
// An error of the acquire is returned as Acquire returns it, and f was not called.
// Otherwise the error is f's, joined with one that matches ErrNotHeld if the lock
// was over before f had returned. That a release found no leader is only logged: f
// has done its work under the lock, and the lease frees the key.
func (c *Client) Do(ctx context.Context, key string, f func(ctx context.Context) error, opts ...AcquireOption) error {
	l, err := c.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.warn(func() { cancel(ErrLost) })
	panicked := true
	defer func() {
		if panicked {
			_ = l.Release(context.WithoutCancel(ctx))
		}
	}()
	err = f(inner)
	panicked = false
	switch released := l.Release(context.WithoutCancel(ctx)); {
	case errors.Is(released, ErrNotHeld):
		err = errors.Join(err, released)
	case released != nil:
		c.log.Warn("the lock could not be released and ends with its lease", "key", key, "token", l.token, "err", released)
	}
	return err
}
