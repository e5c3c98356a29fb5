package fsm

import "errors"

// The two ways in which a proposed entry can end without being known to be
// applied. Anything that is neither nil nor ErrNotExecuted must be taken for
// ErrUnknown.
var (
	// ErrNotExecuted: the entry was definitely not appended and never will be.
	ErrNotExecuted = errors.New("not executed: the entry was not appended to the log")
	// ErrUnknown: the entry may be applied at any later time, or never.
	ErrUnknown = errors.New("unknown outcome: the entry may or may not be applied")
)
