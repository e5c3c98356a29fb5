package client

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// State is what a query says of a key, as the leader had applied it.
type State struct {
	Token     uint64        // 0: nobody holds it
	Owner     uint64        // correlation number of the acquire that got it
	Remaining time.Duration // of the lease, rounded down to milliseconds
	Waiters   int           // acquires in the key's queue
}

// Query asks who holds a key, for up to 5 s. It says nothing about the next
// moment: never enter a critical section because of it. The errors are
// ErrUnavailable, ErrRefused, ErrClosed and ctx's.
func (c *Client) Query(ctx context.Context, key string) (State, error) {
	if err := wire.ValidKey(key); err != nil {
		return State{}, &Error{Op: "query", Key: key, Kind: ErrRefused, Cause: err}
	}
	k := &call{op: wire.OpQuery, key: key, patience: maxPatience}
	if err := c.request(ctx, k); err != nil {
		return State{}, err
	}
	r := &k.reply
	return State{
		Token: r.Token, Owner: r.Holder, Remaining: time.Duration(r.RemainingMS) * time.Millisecond, Waiters: int(r.Waiters),
	}, nil
}

// Ping returns when the leader has answered, within 5 s. The errors are those of
// Query.
func (c *Client) Ping(ctx context.Context) error {
	return c.request(ctx, &call{op: wire.OpPing, patience: maxPatience})
}

// ReleaseToken gives back exactly one grant, for callers that kept only its
// token, and tries for 5 s like Lock.Release. The errors are those of Release;
// ErrNotHeld is also the answer when an earlier try of this same call ended the
// grant and its answer was lost, and its text says where that may be so.
func (c *Client) ReleaseToken(ctx context.Context, key string, token uint64) error {
	if err := wire.ValidKey(key); err != nil {
		return &Error{Op: "release", Key: key, Kind: ErrRefused, Cause: err}
	}
	now := c.now()
	return c.request(ctx, c.releaseCall(key, token, now, now+transport))
}

// KeepToken renews exactly one grant once: its lease begins anew, with this
// length (1 to 255 s, rounded up to whole seconds). It returns the time at
// which the caller must stop believing in it. It tries for 5 s; the errors are
// those of Lock.Keep.
func (c *Client) KeepToken(ctx context.Context, key string, token uint64, lease time.Duration) (time.Time, error) {
	err := checkLease(lease)
	if err == nil {
		err = wire.ValidKey(key)
	}
	if err != nil {
		return time.Time{}, &Error{Op: "keep", Key: key, Kind: ErrRefused, Cause: err}
	}
	k := &call{op: wire.OpKeep, key: key, token: token, lease: wholeSeconds(lease), patience: patienceFor(lease)}
	if err := c.request(ctx, k); err != nil {
		return time.Time{}, err
	}
	lease = seconds(k.lease)
	return time.Now().Add(k.sentAt + lease - margin(lease) - c.now()), nil
}

// request submits a call that may be repeated, and waits for its outcome.
func (c *Client) request(ctx context.Context, k *call) error {
	if err := ctx.Err(); err != nil {
		return &Error{Op: opName(k.op), Key: k.key, Kind: err}
	}
	if k.owner == 0 {
		k.owner = newOwner()
	}
	k.start = c.now()
	k.deadline = k.start + transport
	k.done = make(chan struct{})
	c.mu.Lock()
	if c.closed {
		c.unlock()
		return &Error{Op: opName(k.op), Key: k.key, Kind: ErrClosed}
	}
	c.submit(k)
	c.unlock()
	return c.await(ctx, k)
}

// await returns a repeatable call's outcome, or ctx's end. A release goes on
// without its caller; any other call is given up.
func (c *Client) await(ctx context.Context, k *call) error {
	select {
	case <-k.done:
	case <-ctx.Done():
		c.mu.Lock()
		defer c.unlock()
		if k.state == done {
			break
		}
		if k.op == wire.OpRelease {
			return newError("release", k.key, ErrIndeterminate, ctx.Err())
		}
		if k.state == possiblySent {
			k.session.drop(k)
			c.settleUnanswered(k, ctx.Err())
			break
		}
		var cause error
		if !c.anyUsable() {
			cause = c.whyNoLeader()
		}
		c.settleUnsent(k, ctx.Err(), cause)
	}
	if k.kind == nil {
		return nil
	}
	cause := k.cause
	if k.repeated && errors.Is(k.kind, ErrNotHeld) && k.op == wire.OpRelease {
		cause = errUnbelieved
	}
	return newError(opName(k.op), k.key, k.kind, cause)
}

// releaseCall makes a release of exactly this token.
func (c *Client) releaseCall(key string, token uint64, now, deadline time.Duration) *call {
	return &call{
		op: wire.OpRelease, key: key, owner: newOwner(), token: token,
		start: now, deadline: deadline, patience: maxPatience,
	}
}
