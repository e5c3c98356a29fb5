package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// TryAcquire is Acquire with one immediate attempt: it never queues.
func (c *Client) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lock, error) {
	return c.Acquire(ctx, key, append(opts[:len(opts):len(opts)], WithWait(0))...)
}

// Acquire waits for the key and returns a Lock that renews itself. It returns
// by the wait + 5 s at the latest, or soon after ctx ends. key is 1 to 512
// bytes of UTF-8 without a newline.
//
// Errors (see the package documentation for what they mean): ErrTimeout,
// ErrBusy, ErrRefused, ErrUnavailable, ErrClosed or ctx's own error say that
// the key was definitely not granted; ErrIndeterminate that it may have been.
func (c *Client) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lock, error) {
	a, err := newAcquireConfig(key, opts)
	if err != nil {
		return nil, err
	}
	now := c.cfg.now()
	k := &call{op: wire.OpAcquire, key: key, owner: newOwner(), lease: wholeSeconds(a.lease), res: make(chan result, 1)}
	// One deadline for the whole operation, in two readings: until when the
	// request may be sent, and until when its answer may come.
	k.now, k.wait, k.until = a.wait == 0, now+a.wait, now+a.wait
	total := k.until + transport
	if k.now {
		k.until = now + transport
		total = k.until
	}
	reply, err := c.roundTrip(ctx, k, total)
	if err != nil {
		return nil, c.acquireFailed(k, a, err)
	}
	switch reply.Op {
	case wire.OpAcquired:
		return c.granted(k, a, &reply, total)
	case wire.OpTimeout:
		return nil, &Error{Op: "acquire", Key: key, Kind: ErrTimeout}
	case wire.OpBusy:
		return nil, &Error{Op: "acquire", Key: key, Kind: ErrBusy}
	case wire.OpRefused:
		return nil, refused("acquire", key, &reply)
	}
	k.sess.close(fmt.Errorf("server %s answered an acquire with %q", k.sess.addr, reply.Op))
	return nil, c.acquireFailed(k, a, &fate{cause: fmt.Errorf("unexpected reply %q", reply.Op), possible: true})
}

// errLate: the gate found a grant after the time at which it was of use.
var errLate = errors.New("the grant arrived too late and is being given back")

// granted is the gate between a grant and the deadline: it decides once. A
// grant that comes too late, or is as good as over, is given back.
func (c *Client) granted(k *call, a acquireConfig, reply *wire.Reply, total time.Duration) (*Lock, error) {
	now := c.cfg.now()
	// A server whose clock runs fast must not make us believe longer.
	waited := min(time.Duration(reply.WaitedMS)*time.Millisecond, now-k.sentAt)
	l := &Lock{
		c: c, key: k.key, token: reply.Token, owner: k.owner, lease: a.lease, renews: a.renew,
		end: k.sentAt + waited + a.lease, lost: make(chan struct{}), pos: -1,
	}
	if now >= total || now >= l.safeEnd() {
		c.giveBack(k.key, reply.Token)
		return nil, c.acquireFailed(k, a, &fate{cause: errLate, possible: true, settled: true})
	}
	if !c.hold(l) {
		return nil, c.acquireFailed(k, a, &fate{cause: ErrClosed, possible: true, settled: true})
	}
	return l, nil
}

func refused(op, key string, reply *wire.Reply) error {
	return &Error{Op: op, Key: key, Kind: ErrRefused, Cause: fmt.Errorf("%s (%s)", reply.Text, reply.Code)}
}

// acquireFailed turns the fate of an unanswered acquire into an error, and has
// a grant that nobody heard of looked for.
func (c *Client) acquireFailed(k *call, a acquireConfig, err error) error {
	var f *fate
	if !errors.As(err, &f) {
		f = &fate{cause: err, possible: true}
	}
	e := &Error{Op: "acquire", Key: k.key, Cause: f.cause}
	if f.possible {
		if !f.settled {
			c.reclaim(k.key, k.owner)
		}
		e.Kind = ErrIndeterminate
		e.TakenUntil = time.Now().Add(max(k.wait-c.cfg.now(), 0) + time.Second + a.lease)
		return e
	}
	return e.classify()
}

// classify fills in the kind of an error of a request that was not executed.
func (e *Error) classify() error {
	for _, kind := range []error{ErrClosed, context.Canceled, context.DeadlineExceeded, ErrUnavailable} {
		if errors.Is(e.Cause, kind) {
			e.Kind = kind
			if e.Cause == kind { //nolint:errorlint // only the bare error adds nothing
				e.Cause = nil
			}
			return e
		}
	}
	e.Kind = ErrUnavailable
	return e
}

// Do runs f while holding key: it acquires, runs f with a context that ends
// when the lock may be lost or ctx ends, waits for f to return and releases.
// The error joins those of f and of the lock: when the lock was lost it is
// ErrNotHeld, whatever f returned.
func (c *Client) Do(ctx context.Context, key string, f func(ctx context.Context) error, opts ...AcquireOption) (err error) {
	l, err := c.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })
	defer stop()
	defer func() { // also when f panics
		stop()
		ending, done := context.WithTimeout(context.WithoutCancel(ctx), transport)
		defer done()
		err = errors.Join(err, l.Release(ending))
	}()
	return f(run)
}
