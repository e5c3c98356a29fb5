package client

import (
	"errors"
	"fmt"
	"time"
)

// The kinds of failure, for errors.Is.
var (
	// ErrTimeout: the key was held by others until the wait ended. Definitely
	// not granted.
	ErrTimeout = errors.New("timed out waiting for the lock")
	// ErrBusy: the server refused for capacity. Definitely not granted.
	ErrBusy = errors.New("server is at capacity")
	// ErrIndeterminate: the request may have taken effect.
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

// Unwrap lets errors.Is find the kind and the cause; of an indeterminate
// outcome the kind alone, because a cause such as the end of a context
// would by itself mean that nothing was executed.
func (e *Error) Unwrap() []error {
	if e.Cause == nil || e.Kind == ErrIndeterminate { //nolint:errorlint // Kind is never wrapped
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}
