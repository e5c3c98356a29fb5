package frontend

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
	"github.com/holdfast-lock/holdfast/wire"
)

func TestLossOfLeadershipMovesTheQueueAndClosesTheUnknown(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		holder, queued, flying, idle := b.dial(), b.dial(), b.dial(), b.dial()
		holder.send(acquire(1, "k", 0, 100))
		holder.next(wire.OpAcquired, 1)
		queued.send(acquire(2, "k", 60, 10))
		b.log.set(true, errBroken)
		flying.send(acquire(3, "other", 0, 10))
		b.log.mu.Lock()
		b.log.hint = "n2:7420"
		b.log.mu.Unlock()
		b.srv.Follow()
		if m := queued.next(wire.OpMoved, 2); string(m.Text) != "n2:7420" {
			t.Errorf("moved to %q", m.Text)
		}
		flying.silent()
		b.log.set(false, nil)
		flying.ended()
		idle.send(acquire(4, "k", 60, 10))
		idle.next(wire.OpMoved, 4)
		idle.ended()
	})
}

func TestQueuedAcquiresWaitBrieflyForTheNextLeadersAddress(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 100), acquire(2, "k", 60, 10), acquire(3, "k", 60, 10))
		p.next(wire.OpAcquired, 1)
		b.srv.Follow()
		p.silent()
		start := time.Now()
		time.Sleep(50 * time.Millisecond)
		b.log.mu.Lock()
		b.log.hint = "n3:7420"
		b.log.mu.Unlock()
		for range 2 {
			if m := <-p.got; m.Op != wire.OpMoved || string(m.Text) != "n3:7420" {
				t.Errorf("%c %q", m.Op, m.Text)
			}
		}
		if d := time.Since(start); d > 60*time.Millisecond {
			t.Errorf("moved after %s", d)
		}
	})
}

func TestUnknownFateResigns(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p, q := b.dial(), b.dial()
		q.send(acquire(9, "held", 0, 100), acquire(10, "held", 60, 10))
		q.next(wire.OpAcquired, 9)
		b.log.set(false, fsm.ErrUnknown)
		p.send(acquire(1, "k", 0, 10))
		p.ended()
		q.next(wire.OpMoved, 10)
		synctest.Wait()
		if len(b.log.resigns) != 1 {
			t.Errorf("resigned %d times", len(b.log.resigns))
		}
	})
}

func TestNotExecutedIsMoved(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		b.log.set(false, fsm.ErrNotExecuted)
		p.send(acquire(1, "k", 0, 10), release(2, "x", 5), keep(3, "y", 5, 5))
		for _, owner := range []uint64{1, 2, 3} {
			p.next(wire.OpMoved, owner)
		}
	})
}

func TestStaleEpochIsMovedAndEndsTheTerm(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		b.log.set(true, nil)
		p.send(acquire(1, "k", 0, 10))
		b.log.mu.Lock()
		b.log.index++
		data, _ := fsm.AppendEntry(nil, &fsm.Entry{Ops: []fsm.Op{{Kind: fsm.KindTakeover, Takeover: &fsm.Takeover{NodeID: "n2"}}}})
		b.table.Apply(b.log.index, data)
		b.log.mu.Unlock()
		b.log.set(false, nil)
		p.next(wire.OpMoved, 1)
		if b.table.Len() != 0 {
			t.Error("a stale entry was executed")
		}
		synctest.Wait()
		if n := len(b.log.resigns); n != 1 {
			t.Errorf("resigned %d times, want once: another leader has taken over", n)
		}
	})
}
