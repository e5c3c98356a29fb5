package frontend

import "time"

const (
	// maxClockStep is the most the leader's clock moves between two looks at
	// it. A process that was frozen for longer has its clock set back by the
	// rest for good: it cannot know which renewals waited in its sockets
	// meanwhile, and late is safe where early is not.
	maxClockStep = 2 * time.Second
	// stallStep is a step after which leases are not taken back until the
	// sockets have had expiryHold to deliver the renewals that waited in them.
	// The sequencer looks at its clock at least every TickInterval while
	// grants exist, so a step this long means that the process did not run.
	stallStep  = time.Second
	expiryHold = 250 * time.Millisecond
)

// leaderClock is the leader's view of the cluster clock: base plus its own
// monotonic time since it took over. It never runs faster than real time.
type leaderClock struct {
	base time.Duration // cluster time at mono
	mono time.Duration // the monotonic reading that base belongs to
	hold time.Duration // no lease is taken back before this monotonic time
}

// start sets the clock to the cluster time that the Takeover's own Apply
// returned. mono is read after that Apply, so the clock can only be behind.
func (c *leaderClock) start(base, mono time.Duration) {
	*c = leaderClock{base: base, mono: mono}
}

// now moves the clock to the monotonic reading mono and returns cluster time.
func (c *leaderClock) now(mono time.Duration) time.Duration {
	step := max(mono-c.mono, 0)
	c.mono += step
	if step > stallStep {
		c.hold = c.mono + expiryHold
	}
	c.base += min(step, maxClockStep)
	return c.base
}

// held says whether leases must not be taken back just now.
func (c *leaderClock) held() bool { return c.mono < c.hold }
