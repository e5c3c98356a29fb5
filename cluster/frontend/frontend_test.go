package frontend

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
	"github.com/holdfast-lock/holdfast/wire"
)

func TestGrantReleaseHandOver(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 10))
		first := p.next(wire.OpAcquired, 1)
		p.send(acquire(2, "k", 30, 10), acquire(3, "k", 30, 10))
		p.silent()
		before := b.log.count()
		time.Sleep(100 * time.Millisecond)
		p.send(release(4, "k", first.Token))
		got := map[uint64]wire.Reply{}
		for range 2 {
			r := <-p.got
			got[r.Owner] = r
		}
		if got[4].Op != wire.OpReleased || got[2].Op != wire.OpAcquired || got[2].Token <= first.Token {
			t.Fatalf("replies %+v", got)
		}
		if w := got[2].WaitedMS; w != 100 {
			t.Errorf("waited %d ms, want 100", w)
		}
		if n := b.log.count() - before; n != 1 {
			t.Errorf("hand-over took %d entries, want 1", n)
		}
		if ops := b.log.last().Ops; len(ops) != 2 || ops[0].Kind != fsm.KindRelease || ops[1].Kind != fsm.KindGrant {
			t.Errorf("entry %+v", ops)
		}
		p.silent() // 3 still waits
	})
}

func TestRequestsOfOneReadShareAnEntry(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		before := b.log.count()
		p.send(acquire(1, "a", 0, 10), acquire(2, "b", 0, 10), acquire(3, "c", 9, 10))
		for _, owner := range []uint64{1, 2, 3} {
			p.next(wire.OpAcquired, owner)
		}
		if n := b.log.count() - before; n != 1 {
			t.Errorf("%d entries, want 1", n)
		}
	})
}

func TestPipelinedReleaseAndImmediateAttempt(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 10))
		first := p.next(wire.OpAcquired, 1)
		p.send(release(2, "k", first.Token), acquire(3, "k", 0, 10))
		p.next(wire.OpReleased, 2)
		p.next(wire.OpAcquired, 3)
	})
}

func TestTimeoutIsNeverEarlyNorForgotten(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 255))
		p.next(wire.OpAcquired, 1)
		start := time.Now()
		p.send(acquire(2, "k", 7, 10), acquire(3, "k", 3, 10), acquire(4, "k", 0, 10))
		p.next(wire.OpTimeout, 4)
		p.next(wire.OpTimeout, 3)
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("timeout after %s, want 3s", d)
		}
		p.next(wire.OpTimeout, 2)
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("timeout after %s, want 7s", d)
		}
	})
}

func TestExpiryGrantsTheHeadInTheSameEntry(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 5))
		p.next(wire.OpAcquired, 1)
		start := time.Now()
		p.send(acquire(2, "k", 60, 5))
		r := p.next(wire.OpAcquired, 2)
		if d := time.Since(start); d < 5*time.Second || d > 5*time.Second+250*time.Millisecond {
			t.Errorf("granted after %s, want 5s", d)
		}
		if r.WaitedMS < 5000 || r.WaitedMS > 5250 {
			t.Errorf("waited %d ms", r.WaitedMS)
		}
		if ops := b.log.last().Ops; len(ops) != 2 || ops[0].Kind != fsm.KindExpire || ops[1].Kind != fsm.KindGrant {
			t.Errorf("entry %+v", ops)
		}
	})
}

func TestKeepRestartsTheLease(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 4))
		token := p.next(wire.OpAcquired, 1).Token
		time.Sleep(3 * time.Second)
		p.send(keep(2, "k", token, 6))
		p.next(wire.OpKept, 2)
		time.Sleep(5 * time.Second)
		p.send(query(3, "k"))
		if s := p.next(wire.OpState, 3); s.Token != token || s.Holder != 1 || s.RemainingMS != 1000 {
			t.Errorf("state %+v", s)
		}
		p.send(keep(4, "k", token+1, 6))
		p.next(wire.OpNotHeld, 4)
		time.Sleep(2 * time.Second)
		p.send(keep(5, "k", token, 6), query(6, "k"))
		seen := map[uint64]wire.Op{}
		for range 2 {
			r := <-p.got
			seen[r.Owner] = r.Op
		}
		if seen[5] != wire.OpNotHeld || seen[6] != wire.OpState {
			t.Errorf("after expiry: %v", seen)
		}
	})
}

func TestCancelAnswersTimeoutForQueuedOnly(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p, other := b.dial(), b.dial()
		p.send(acquire(1, "k", 0, 100))
		p.next(wire.OpAcquired, 1)
		p.send(acquire(7, "k", 60, 10), acquire(7, "k", 60, 10))
		other.send(wire.Request{Op: wire.OpCancel, Owner: 7}) // not its session
		p.silent()
		p.send(wire.Request{Op: wire.OpCancel, Owner: 1}) // granted long ago
		p.silent()
		p.send(wire.Request{Op: wire.OpCancel, Owner: 7})
		p.next(wire.OpTimeout, 7)
		p.next(wire.OpTimeout, 7)
		if n := b.srv.Stats().Waiters; n != 0 {
			t.Errorf("%d waiters left", n)
		}
	})
}

func TestClosedSessionLeavesTheQueueAndKeepsItsGrants(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		holder, dead, next := b.dial(), b.dial(), b.dial()
		holder.send(acquire(1, "k", 0, 100))
		token := holder.next(wire.OpAcquired, 1).Token
		dead.send(acquire(2, "k", 200, 10))
		next.send(acquire(3, "k", 200, 10))
		dead.conn.Close()
		holder.conn.Close()
		synctest.Wait()
		next.silent() // the grant outlives its session
		next.send(release(4, "k", token))
		ops := map[wire.Op]bool{}
		for range 2 {
			ops[(<-next.got).Op] = true
		}
		if !ops[wire.OpReleased] || !ops[wire.OpAcquired] {
			t.Errorf("replies %v", ops)
		}
	})
}

func TestGrantThatNeverReachedTheSocketIsGivenBack(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p, q := b.dialSilent(), b.dial()
		b.log.set(true, nil)
		p.send(acquire(1, "k", 0, 200))
		p.conn.Close()
		synctest.Wait()
		b.log.set(false, nil) // the grant commits after the session has gone
		synctest.Wait()
		q.send(acquire(2, "k", 0, 10))
		q.next(wire.OpAcquired, 2)
		if n := b.srv.Stats().Orphans; n != 1 {
			t.Errorf("%d orphans given back, want 1", n)
		}
	})
}

func TestGrantStuckBehindAClientThatDoesNotReadIsGivenBack(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p, q := b.dialSilent(), b.dial()
		p.send(wire.Request{Op: wire.OpPing, Owner: 1}) // its pong blocks the writer
		p.send(acquire(2, "k", 0, 200))                 // and this one waits behind it
		time.Sleep(b.srv.cfg.WriteTimeout + time.Millisecond)
		synctest.Wait()
		q.send(acquire(3, "k", 0, 10))
		q.next(wire.OpAcquired, 3)
	})
}

func TestGrantWhoseWriteFailedIsGivenBack(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p, q := b.dialSilent(), b.dial()
		p.send(acquire(1, "a", 0, 200), acquire(2, "b", 0, 200)) // both in the one write that blocks
		_, _ = p.conn.Read(make([]byte, 30))                     // the first frame and a part of the second
		time.Sleep(b.srv.cfg.WriteTimeout + time.Millisecond)
		q.send(acquire(4, "b", 0, 10), acquire(5, "a", 0, 10))
		q.next(wire.OpTimeout, 4) // its frame was begun: only the lease ends it
		q.next(wire.OpTimeout, 5)
	})
	inBubble(t, nil, func(b *bench) {
		p, q := b.dialSilent(), b.dial()
		p.send(acquire(1, "a", 0, 200), acquire(2, "b", 0, 200))
		_, _ = p.conn.Read(make([]byte, 10)) // a part of the first frame
		time.Sleep(b.srv.cfg.WriteTimeout + time.Millisecond)
		q.send(acquire(3, "b", 0, 10))
		q.next(wire.OpAcquired, 3)
	})
}

func TestBounds(t *testing.T) {
	small := func(c *Config) { c.MaxWaitersPerKey, c.MaxWaiters, c.MaxGrants = 2, 3, 2 }
	inBubble(t, small, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "a", 0, 100), acquire(2, "b", 0, 100))
		p.next(wire.OpAcquired, 1)
		p.next(wire.OpAcquired, 2)
		p.send(acquire(3, "c", 0, 100))
		p.next(wire.OpBusy, 3) // table full
		p.send(acquire(4, "c", 5, 100))
		p.next(wire.OpBusy, 4)
		p.send(acquire(5, "a", 60, 1), acquire(6, "a", 60, 1))
		p.silent()
		p.send(acquire(7, "a", 60, 1))
		p.next(wire.OpBusy, 7) // queue of the key full
		p.send(acquire(8, "a", 0, 1))
		p.next(wire.OpTimeout, 8) // an immediate attempt never queues
		p.send(acquire(9, "b", 60, 1))
		p.silent()
		p.send(acquire(10, "b", 60, 1))
		p.next(wire.OpBusy, 10) // all queues full
	})
}
