package frontend

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
	"github.com/holdfast-lock/holdfast/wire"
)

func TestFrozenLeaderReadsRenewalsBeforeItExpires(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 8))
		token := p.next(wire.OpAcquired, 1).Token
		p.send(acquire(2, "k", 200, 8))
		// The process is frozen for a minute: its clock is not looked at, while
		// time goes on and a renewal arrives.
		b.freeze(time.Minute)
		p.send(keep(3, "k", token, 8))
		p.next(wire.OpKept, 3)
		p.silent()
	})
}

// freeze keeps the sequencer from running for d.
func (b *bench) freeze(d time.Duration) {
	done := make(chan struct{})
	go b.srv.do(func() { time.Sleep(d); close(done) })
	<-done
}

func TestTickKeepsTheClockYoungWhileGrantsExist(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		time.Sleep(time.Minute)
		if n := b.log.count(); n != 0 {
			t.Errorf("%d entries while idle, want none", n)
		}
		p := b.dial()
		p.send(acquire(1, "k", 0, 100))
		p.next(wire.OpAcquired, 1)
		for range 20 {
			before := b.table.Clock()
			time.Sleep(600 * time.Millisecond)
			synctest.Wait()
			if b.table.Clock() == before {
				t.Fatal("the clock stood still")
			}
		}
		if n := b.log.count(); n > 30 {
			t.Errorf("%d entries in 12 s, want about 24", n)
		}
	})
}

// TestNothingSpins: whatever state the server is in, its next look lies ahead.
func TestNothingSpins(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		sleeps := func(state string, atLeast time.Duration) {
			t.Helper()
			synctest.Wait()
			b.srv.do(func() {
				q := b.srv.q
				q.finish()
				if wake, ok := q.nextWake(); ok && wake-q.mono < atLeast {
					t.Errorf("%s: wakes after %s", state, wake-q.mono)
				}
			})
		}
		sleeps("idle leader", time.Hour)
		p := b.dial()
		for i := range uint64(1000) {
			p.send(acquire(i, fmt.Sprint("k", i), 0, 3))
			p.next(wire.OpAcquired, i)
		}
		time.Sleep(600 * time.Millisecond)
		sleeps("many locks", 100*time.Millisecond)
		b.log.set(true, nil)
		time.Sleep(2 * time.Second)
		sleeps("the log stalls", 100*time.Millisecond)
		time.Sleep(2 * time.Second)
		sleeps("the log stalls and leases are over", lookInterval)
		b.log.set(false, fsm.ErrNotExecuted)
		sleeps("the log turns everything away", retryPause)
		b.log.set(false, nil)
		b.freeze(time.Minute)
		sleeps("after a stall", time.Millisecond)
		b.srv.Follow()
		sleeps("follower", time.Hour)
	})
}

func TestClockIsNeverFastAndStandsStillAfterAStall(t *testing.T) {
	var c leaderClock
	c.start(100*time.Second, 5*time.Second)
	for _, step := range []struct{ mono, want time.Duration }{
		{5500 * time.Millisecond, 100500 * time.Millisecond},
		{5400 * time.Millisecond, 100500 * time.Millisecond}, // backwards: no
		{6500 * time.Millisecond, 101500 * time.Millisecond},
		{60 * time.Second, 101500 * time.Millisecond}, // a stall
		{60200 * time.Millisecond, 101500 * time.Millisecond},
		{60300 * time.Millisecond, 101550 * time.Millisecond},
	} {
		if got := c.now(step.mono); got != step.want {
			t.Errorf("at %s the clock shows %s, want %s", step.mono, got, step.want)
		}
	}
	if at := c.at(c.base + time.Second); at != c.mono+time.Second {
		t.Errorf("a second from %s is %s", c.mono, at)
	}
}
