package frontend

import "time"

const (
	// stallStep is a step between two looks at the clock that means that the
	// process did not run: while grants exist the sequencer looks every
	// lookInterval.
	stallStep    = time.Second
	lookInterval = stallStep / 2
	// stallHold is how long the clock stands still after a stall, so that the
	// renewals that waited in the sockets are read before their leases end.
	stallHold = 250 * time.Millisecond
)

// leaderClock is the leader's view of the cluster clock: base plus its own
// monotonic time since it took over, without the times at which it cannot know
// which renewals waited in its sockets. It never runs faster than real time:
// late is safe where early is not.
type leaderClock struct {
	base time.Duration // cluster time at mono
	mono time.Duration // the monotonic reading that base belongs to
	hold time.Duration // the clock stands still until this monotonic time
}

// start sets the clock to the cluster time that the Takeover's own Apply
// returned. mono is read after that Apply, so the clock can only be behind.
func (c *leaderClock) start(base, mono time.Duration) {
	*c = leaderClock{base: base, mono: mono}
}

// now moves the clock to the monotonic reading mono and returns cluster time. A
// stall, and stallHold after it, are taken off for good.
func (c *leaderClock) now(mono time.Duration) time.Duration {
	switch {
	case mono <= c.mono:
		return c.base
	case mono-c.mono > stallStep:
		c.hold = mono + stallHold
	case mono > c.hold:
		c.base += mono - max(c.mono, c.hold)
	}
	c.mono = mono
	return c.base
}

// skip passes over a time in which nobody had a lease that it could matter to.
func (c *leaderClock) skip(mono time.Duration) { c.mono = max(c.mono, mono) }

// at is the monotonic time at which the clock will show t.
func (c *leaderClock) at(t time.Duration) time.Duration { return max(c.mono, c.hold) + t - c.base }
