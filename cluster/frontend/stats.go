package frontend

import "sync/atomic"

// counters are written by the goroutine that knows and read by Stats.
type counters struct {
	sessions, waiters, queue                           atomic.Int64
	accepted, turnedAway                               atomic.Uint64
	acquires, granted, timeouts, busy, moved, refused  atomic.Uint64
	released, kept, notHeld, expired, orphans, unknown atomic.Uint64
	entries, batched, waited                           atomic.Uint64
}

// Stats is a reading of the front end's gauges and of its counters since the
// process began.
type Stats struct {
	Sessions int // client sessions open now
	Waiters  int // acquires queued now
	Queue    int // operations waiting for a log entry now

	SessionsAccepted   uint64 // sessions ever accepted
	SessionsTurnedAway uint64 // connections closed because MaxSessions was reached
	Acquires           uint64 // acquires read while leading
	Granted            uint64 // acquires answered Acquired, or granted and given back
	Timeouts           uint64 // acquires answered Timeout
	Busy               uint64 // acquires answered Busy
	Moved              uint64 // requests answered Moved
	Refused            uint64 // requests answered Refused
	Released           uint64 // grants ended by a release
	Kept               uint64 // leases renewed
	NotHeld            uint64 // releases and keeps answered Not held
	Expired            uint64 // grants ended by their lease
	Orphans            uint64 // grants given back because the client was gone
	Unknown            uint64 // requests whose session was closed because their fate was unknown
	Entries            uint64 // log entries proposed
	EntryOps           uint64 // operations in those entries
	WaitedMS           uint64 // milliseconds from request to grant, summed over all grants
}

// Stats reads the counters; safe from any goroutine.
func (s *Server) Stats() Stats {
	c := &s.stats
	return Stats{
		Sessions: int(c.sessions.Load()), Waiters: int(c.waiters.Load()), Queue: int(c.queue.Load()),
		SessionsAccepted: c.accepted.Load(), SessionsTurnedAway: c.turnedAway.Load(),
		Acquires: c.acquires.Load(), Granted: c.granted.Load(), Timeouts: c.timeouts.Load(),
		Busy: c.busy.Load(), Moved: c.moved.Load(), Refused: c.refused.Load(),
		Released: c.released.Load(), Kept: c.kept.Load(), NotHeld: c.notHeld.Load(),
		Expired: c.expired.Load(), Orphans: c.orphans.Load(), Unknown: c.unknown.Load(),
		Entries: c.entries.Load(), EntryOps: c.batched.Load(), WaitedMS: c.waited.Load(),
	}
}
