package frontend

import (
	"fmt"
	"log/slog"
	"time"
)

// Config bounds everything a client can make the front end hold. Every field
// is a flag of `holdfast serve`; DefaultConfig has the values used there.
type Config struct {
	// MaxSessions is how many client connections are served at once (1 or
	// more). One more is closed as soon as it is accepted.
	MaxSessions int
	// MaxInflightPerSession is how many requests of one session may be
	// unanswered (1 or more). Beyond it the server stops reading that session.
	MaxInflightPerSession int
	// MaxWaitersPerKey and MaxWaiters bound the queues (1 or more): an acquire
	// beyond either is answered Busy.
	MaxWaitersPerKey int
	MaxWaiters       int
	// MaxGrants is how many grants the table may hold (1 or more): an acquire
	// beyond it is answered Busy.
	MaxGrants int
	// MaxQueue is how many operations may wait to be put into a log entry (1
	// or more): an acquire beyond it is answered Busy.
	MaxQueue int
	// MaxBatchOps is how many operations one log entry carries (2 or more: a
	// release and the grant that follows it are never parted).
	MaxBatchOps int
	// MaxEntriesInflight is how many log entries may be proposed and not yet
	// applied (1 or more). More overlap disks, fewer make larger batches.
	MaxEntriesInflight int
	// WriteBufferBytes is how much unread output one session may have (4096 or
	// more); a session that has more is closed.
	WriteBufferBytes int
	// WriteTimeout is how long one write to a client may take.
	WriteTimeout time.Duration
	// FirstFrameTimeout is how long a new session may say nothing.
	FirstFrameTimeout time.Duration
	// FrameTimeout is how long a frame may take from its first byte to its last.
	FrameTimeout time.Duration
	// CloseGrace is how long a session lives on after its first Moved, and
	// again how long it is drained before it is closed.
	CloseGrace time.Duration
	// TickInterval is how long the cluster clock may go unstamped while grants
	// exist. It bounds how late a lease may end after a change of leader.
	TickInterval time.Duration
	// Logger receives what an operator should know; nil discards it.
	Logger *slog.Logger
}

// DefaultConfig returns the bounds a server has when nothing is said.
func DefaultConfig() Config {
	return Config{
		MaxSessions:           20_000,
		MaxInflightPerSession: 16_384,
		MaxWaitersPerKey:      10_000,
		MaxWaiters:            100_000,
		MaxGrants:             1_000_000,
		MaxQueue:              65_536,
		MaxBatchOps:           1_024,
		MaxEntriesInflight:    2,
		WriteBufferBytes:      1 << 20,
		WriteTimeout:          5 * time.Second,
		FirstFrameTimeout:     10 * time.Second,
		FrameTimeout:          5 * time.Second,
		CloseGrace:            500 * time.Millisecond,
		TickInterval:          500 * time.Millisecond,
	}
}

// Validate reports the first field that is out of bounds, by its flag's name.
func (c Config) Validate() error {
	for _, b := range []struct {
		flag      string
		got, min_ int
	}{
		{"--max-sessions", c.MaxSessions, 1},
		{"--max-inflight-per-session", c.MaxInflightPerSession, 1},
		{"--max-waiters-per-key", c.MaxWaitersPerKey, 1},
		{"--max-waiters", c.MaxWaiters, 1},
		{"--max-grants", c.MaxGrants, 1},
		{"--max-queue", c.MaxQueue, 1},
		{"--max-batch-ops", c.MaxBatchOps, 2},
		{"--max-entries-inflight", c.MaxEntriesInflight, 1},
		{"--write-buffer-bytes", c.WriteBufferBytes, 4096},
	} {
		if b.got < b.min_ {
			return fmt.Errorf("%s is %d: set it to %d or more", b.flag, b.got, b.min_)
		}
	}
	for _, d := range []struct {
		flag string
		got  time.Duration
	}{
		{"--write-timeout", c.WriteTimeout},
		{"--first-frame-timeout", c.FirstFrameTimeout},
		{"--frame-timeout", c.FrameTimeout},
		{"--close-grace", c.CloseGrace},
		{"--tick-interval", c.TickInterval},
	} {
		if d.got <= 0 {
			return fmt.Errorf("%s is %s: set it to a positive duration, for example 5s", d.flag, d.got)
		}
	}
	return nil
}
