package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// The kinds of failure, for errors.Is.
var (
	// ErrTimeout: the key was held by others until the wait ended. Definitely
	// not granted.
	ErrTimeout = errors.New("timed out waiting for the lock")
	// ErrBusy: the server refused for capacity. Definitely not granted.
	ErrBusy = errors.New("server is at capacity")
	// ErrIndeterminate: the request may have taken effect. After an acquire: do
	// not enter the critical section.
	ErrIndeterminate = errors.New("outcome unknown")
	// ErrNotHeld: that exact token is not the key's active grant: it was
	// released, ran out, or never was.
	ErrNotHeld = errors.New("not held")
	// ErrRefused: the server does not execute this request at all.
	ErrRefused = errors.New("refused")
	// ErrUnavailable: no leader could be reached in time. The request was
	// definitely not executed.
	ErrUnavailable = errors.New("no leader could be reached")
	// ErrClosed: the client was closed. Of an acquire: definitely not granted.
	ErrClosed = errors.New("client is closed")
	// ErrLost is the cause with which a Lock's Context ends when the lock is
	// not known to be held any longer.
	ErrLost = errors.New("lock lost")
	// ErrReleased is the cause with which a Lock's Context ends at Release.
	ErrReleased = errors.New("lock released")
)

// Error says what failed, on which key, and what may have happened.
type Error struct {
	Op  string // "acquire", "release", "keep", "query" or "ping"
	Key string
	// Kind is one of this package's errors, or a context's.
	Kind error
	// Cause has the detail; nil if there is none.
	Cause error
	// TakenUntil is, for an indeterminate acquire, the time by which a grant
	// that nobody heard of has ended, as long as the leader stays. Zero otherwise.
	TakenUntil time.Time
}

func (e *Error) Error() string {
	s := e.Op
	if e.Key != "" {
		s += fmt.Sprintf(" %q", e.Key)
	}
	s += ": " + e.Kind.Error()
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	if !e.TakenUntil.IsZero() {
		s += fmt.Sprintf(" (the key may stay taken until %s)", e.TakenUntil.Format("15:04:05"))
	}
	return s
}

// Unwrap lets errors.Is find both the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// The details that errors carry.
var (
	errNoReply    = errors.New("no answer in time")
	errLateGrant  = errors.New("granted too late; it is being given back")
	errQueuedLong = errors.New("it was still queued in this client, behind others")
	errDrained    = errors.New("not needed any more")
	errSilent     = errors.New("no sign of life")
	errLeaseOver  = errors.New("its lease ran out")
	errNotHolder  = errors.New("the servers say that this token is not the holder")
	errUnbelieved = errors.New("an earlier try of this call may have ended it")
)

// newError keeps the kinds apart: an outcome that is unknown must not also match
// a kind that says it is known, whatever brought it about.
func newError(op, key string, kind, cause error) *Error {
	if kind == ErrIndeterminate { //nolint:errorlint // a kind is never wrapped
		for _, definite := range []error{ErrClosed, ErrUnavailable, ErrTimeout, ErrBusy, ErrRefused, ErrNotHeld, context.Canceled, context.DeadlineExceeded} {
			if errors.Is(cause, definite) {
				cause = opaque{cause}
				break
			}
		}
	}
	return &Error{Op: op, Key: key, Kind: kind, Cause: cause}
}

// opaque is an error of which only the text is of use to a caller: the timeout of
// a dial, say, is not the end of the caller's context.
type opaque struct{ err error }

func (o opaque) Error() string { return o.err.Error() }

// refusal makes an error of an E reply; errors.As finds a *wire.Refusal.
func refusal(reply *wire.Reply) error {
	return &wire.Refusal{Code: reply.Code, Owner: reply.Owner, Reason: string(reply.Text), Fatal: reply.Code.Fatal()}
}

// notSent says why a call's time passed before it could be sent. Needs c.mu.
func (c *Client) notSent(k *call) (kind, cause error) {
	if k.state == queued || c.anyUsable() {
		return ErrTimeout, errQueuedLong
	}
	return ErrUnavailable, c.whyNoLeader()
}
