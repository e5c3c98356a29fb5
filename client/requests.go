package client

import (
	"context"
	"errors"
	"fmt"
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

// Query asks who holds a key. It says nothing about the next moment: never
// enter a critical section because of it.
func (c *Client) Query(ctx context.Context, key string) (State, error) {
	reply, err := c.ask(ctx, "query", call{op: wire.OpQuery, key: key})
	if err != nil {
		return State{}, err
	}
	return State{Token: reply.Token, Owner: reply.Holder, Remaining: time.Duration(reply.RemainingMS) * time.Millisecond, Waiters: int(reply.Waiters)}, nil
}

// Ping returns when the leader has answered.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.ask(ctx, "ping", call{op: wire.OpPing})
	return err
}

// ask sends a question, which may be repeated at will.
func (c *Client) ask(ctx context.Context, op string, k call) (wire.Reply, error) {
	if k.key != "" || k.op != wire.OpPing {
		if err := wire.ValidKey(k.key); err != nil {
			return wire.Reply{}, &Error{Op: op, Key: k.key, Kind: ErrRefused, Cause: err}
		}
	}
	reply, _, _, err := c.idempotent(ctx, k, c.cfg.now()+transport, transport/3)
	switch {
	case err != nil:
		return reply, unanswered(op, k.key, false, err)
	case reply.Op == wire.OpRefused:
		return reply, refused(op, k.key, &reply)
	case reply.Op != wire.OpState && reply.Op != wire.OpPong:
		return reply, &Error{Op: op, Key: k.key, Kind: ErrUnavailable, Cause: fmt.Errorf("unexpected reply %q", reply.Op)}
	}
	return reply, nil
}

// unanswered makes the error of a request without an answer; maybe says
// whether one of its tries may have been executed.
func unanswered(op, key string, maybe bool, err error) error {
	e := &Error{Op: op, Key: key, Cause: err}
	var f *fate
	if errors.As(err, &f) {
		e.Cause = f.cause
	}
	if maybe {
		e.Kind = ErrIndeterminate
		return e
	}
	return e.classify()
}

// ReleaseToken gives back exactly one grant, for callers that kept only its
// token. Errors are those of Lock.Release; ErrNotHeld is also the answer when an
// earlier try of this same call ended the grant and its answer was lost.
func (c *Client) ReleaseToken(ctx context.Context, key string, token uint64) error {
	_, err := c.release(ctx, key, token)
	return err
}

func (c *Client) release(ctx context.Context, key string, token uint64) (maybe bool, err error) {
	if err := wire.ValidKey(key); err != nil {
		return false, &Error{Op: "release", Key: key, Kind: ErrRefused, Cause: err}
	}
	k := call{op: wire.OpRelease, key: key, token: token}
	reply, _, maybe, err := c.idempotent(ctx, k, c.cfg.now()+transport, transport/3)
	switch {
	case err != nil:
		return maybe, unanswered("release", key, maybe, err)
	case reply.Op == wire.OpReleased:
		return maybe, nil
	case reply.Op == wire.OpNotHeld:
		return maybe, &Error{Op: "release", Key: key, Kind: ErrNotHeld}
	case reply.Op == wire.OpRefused:
		return maybe, refused("release", key, &reply)
	}
	return maybe, &Error{Op: "release", Key: key, Kind: ErrIndeterminate, Cause: fmt.Errorf("unexpected reply %q", reply.Op)}
}

// KeepToken renews exactly one grant once: its lease begins anew, with this
// length (1 to 255 s, rounded up to whole seconds). It returns the time at
// which the caller must stop believing in it.
func (c *Client) KeepToken(ctx context.Context, key string, token uint64, lease time.Duration) (time.Time, error) {
	if lease < MinLease || lease > MaxLease {
		return time.Time{}, &Error{Op: "keep", Key: key, Kind: ErrRefused, Cause: fmt.Errorf("lease of %s: use %s to %s", lease, MinLease, MaxLease)}
	}
	if err := wire.ValidKey(key); err != nil {
		return time.Time{}, &Error{Op: "keep", Key: key, Kind: ErrRefused, Cause: err}
	}
	l := &Lock{c: c, key: key, token: token, lease: time.Duration(wholeSeconds(lease)) * time.Second, lost: make(chan struct{}), pos: -1}
	if err := l.keep(ctx, c.cfg.now()+transport); err != nil {
		return time.Time{}, err
	}
	return l.Expires(), nil
}
