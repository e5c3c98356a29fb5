package client

import (
	"container/heap"
	"time"
)

// pollInterval bounds how late an end of time is noticed after a suspension:
// Go's timers stand still meanwhile, the client's clock does not.
const pollInterval = 250 * time.Millisecond

// timer is something that happens at a time of the client's clock: the end of
// an operation, a renewal, the end of a lease. It is embedded in what it belongs
// to, so that ten thousand of them cost neither goroutines nor runtime timers.
// Guarded by Client.mu.
type timer struct {
	at   time.Duration
	pos  int // index in the heap plus one; 0 = not scheduled
	what alarm
}

// alarm is what a timer wakes; called with Client.mu held.
type alarm interface{ alarm(now time.Duration) }

type timers []*timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}
func (h *timers) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.pos = len(*h)
}
func (h *timers) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.pos = 0
	return t
}

// schedule sets or moves a timer. Needs c.mu.
func (c *Client) schedule(t *timer, at time.Duration) {
	if t.pos != 0 {
		t.at = at
		heap.Fix(&c.timers, t.pos-1)
	} else {
		t.at = at
		heap.Push(&c.timers, t)
	}
	if at < c.wakeAt {
		c.wakeAt = at
		poke(c.kick)
	}
}

// unschedule forgets a timer. Needs c.mu.
func (c *Client) unschedule(t *timer) {
	if t.pos != 0 {
		heap.Remove(&c.timers, t.pos-1)
	}
}

// runTimers is the client's one scheduler goroutine.
func (c *Client) runTimers() {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		c.mu.Lock()
		now := c.now()
		for len(c.timers) > 0 && c.timers[0].at <= now {
			heap.Pop(&c.timers).(*timer).what.alarm(now)
		}
		sleep := time.Hour
		if len(c.timers) > 0 {
			sleep = min(c.timers[0].at-now, pollInterval)
		}
		c.wakeAt = now + sleep
		c.unlock()
		t.Reset(sleep)
		select {
		case <-t.C:
		case <-c.kick:
		case <-c.stop:
			return
		}
	}
}

// poke wakes the goroutine that reads ch, which needs room for one.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
