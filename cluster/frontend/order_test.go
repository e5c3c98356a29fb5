package frontend

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
	"github.com/holdfast-lock/holdfast/wire"
)

func TestNothingIsEarlyOnABusyServer(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p, busy := b.dial(), b.dial()
		p.send(acquire(1, "k", 0, 4))
		p.next(wire.OpAcquired, 1)
		start := time.Now()
		p.send(acquire(2, "k", 3, 10), acquire(3, "k", 60, 10))
		work := func(until time.Duration) {
			for time.Since(start) < until { // the sequencer runs every ms
				busy.send(wire.Request{Op: wire.OpPing, Owner: 1})
				busy.next(wire.OpPong, 1)
				time.Sleep(time.Millisecond)
			}
		}
		work(3*time.Second - time.Millisecond)
		p.silent()
		time.Sleep(time.Millisecond)
		p.next(wire.OpTimeout, 2)
		work(4*time.Second - time.Millisecond)
		if n := b.log.ops(fsm.KindExpire); n != 0 {
			t.Errorf("%d expiries proposed before the lease was over", n)
		}
		p.next(wire.OpAcquired, 3)
		if d := time.Since(start); d != 4*time.Second {
			t.Errorf("granted after %s, the lease was 4s", d)
		}
	})
}

func TestHandOverIsNeverCutByTheSizeOfAnEntry(t *testing.T) {
	inBubble(t, func(c *Config) { c.MaxBatchOps, c.MaxEntriesInflight = 2, 1 }, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 100))
		token := p.next(wire.OpAcquired, 1).Token
		p.send(acquire(2, "k", 60, 10))
		b.log.set(true, nil)
		p.send(keep(3, "k", token, 100)) // fills what is in flight
		p.send(keep(4, "k", token, 100), release(5, "k", token))
		b.log.set(false, nil)
		for range 4 {
			<-p.got
		}
		if ops := b.log.last().Ops; len(ops) != 3 || ops[1].Kind != fsm.KindRelease || ops[2].Kind != fsm.KindGrant {
			t.Errorf("the last entry is %+v, want the release and the next grant together", ops)
		}
	})
}

// TestPlaceInTheQueueOutlivesAWrongPrediction: the release that would have made
// the key free was turned away, the grant built on it was not.
func TestPlaceInTheQueueOutlivesAWrongPrediction(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 100))
		token := p.next(wire.OpAcquired, 1).Token
		b.log.set(true, fsm.ErrNotExecuted)
		other := b.dial()
		other.send(release(9, "k", token))
		b.log.set(true, nil)
		p.send(acquire(2, "k", 60, 1), acquire(3, "k", 60, 1))
		b.log.set(false, nil)
		other.next(wire.OpMoved, 9)
		p.silent()
		last := b.dial()
		last.send(release(9, "k", token))
		last.next(wire.OpReleased, 9)
		p.next(wire.OpAcquired, 2)
		p.next(wire.OpAcquired, 3)
	})
}

func TestWaitedEndsWithTheStampAndIsRoundedDown(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 100))
		token := p.next(wire.OpAcquired, 1).Token
		p.send(acquire(2, "k", 60, 100))
		time.Sleep(100*time.Millisecond + 900*time.Microsecond)
		b.log.set(true, nil)
		other := b.dial()
		other.send(release(3, "k", token))
		time.Sleep(300 * time.Millisecond) // the lease runs while the entry is under way
		synctest.Wait()
		b.log.set(false, nil)
		if r := p.next(wire.OpAcquired, 2); r.WaitedMS != 100 {
			t.Errorf("waited %d ms, want 100: a client must not count on more lease than it has", r.WaitedMS)
		}
	})
}
