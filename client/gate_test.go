package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// "If an A was correlated shortly before the deadline but is discovered late at
// the delivery gate, a compensating release of the exact token is scheduled and
// Indeterminate is returned"; the session need not be closed.
func TestLateAtTheGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		cfg := acquireConfig{wait: time.Second, lease: 10 * time.Second, renew: true}
		k := cl.startAcquire("k", &cfg)
		a := p.expect(wire.OpAcquire)
		p.quiet(5 * time.Second)
		p.grant(a, 5)
		synctest.Wait()
		cl.mu.Lock()
		if k.state != granted {
			t.Errorf("state %d", k.state)
		}
		cl.mu.Unlock()
		time.Sleep(1001 * time.Millisecond) // nobody collects it; now it is too late
		l, err := cl.collect(t.Context(), k)
		if l != nil {
			t.Fatal("delivered after the deadline")
		}
		wantErr(t, err, ErrIndeterminate)
		rel := p.expect(wire.OpRelease)
		if rel.Token != 5 {
			t.Fatalf("sent %+v", rel)
		}
		p.reply(wire.Reply{Op: wire.OpReleased, Owner: rel.Owner})
		if err := pinged(cl, p); err != nil {
			t.Errorf("the session is gone: %v", err)
		}
	})
}

// A grant that is never collected is given back at the deadline.
func TestUncollectedGrantIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		cfg := acquireConfig{wait: time.Second, lease: 10 * time.Second}
		begin := time.Now()
		cl.startAcquire("k", &cfg)
		p.grant(p.expect(wire.OpAcquire), 5)
		if rel := p.expect(wire.OpRelease); rel.Token != 5 || time.Since(begin) != 6*time.Second {
			t.Fatalf("sent %+v after %v", rel, time.Since(begin))
		}
	})
}

// A grant whose lease is nearly over by the time it arrives is worth nothing.
func TestGrantWithoutLeaseLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		got := acquire(t.Context(), cl, "k", WithWait(10*time.Second), WithLease(time.Second))
		a := p.expect(wire.OpAcquire)
		time.Sleep(1500 * time.Millisecond) // on the network, not in the queue
		p.reply(wire.Reply{Op: wire.OpAcquired, Owner: a.Owner, Token: 5, WaitedMS: 300})
		if rel := p.expect(wire.OpRelease); rel.Token != 5 {
			t.Fatalf("sent %+v", rel)
		}
		wantErr(t, (<-got).err, ErrIndeterminate)
	})
}

func TestWaitedCountsForTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		got := acquire(t.Context(), cl, "k", WithWait(time.Minute), WithLease(10*time.Second), WithoutRenewal())
		a := p.expect(wire.OpAcquire)
		p.quiet(40 * time.Second)
		p.reply(wire.Reply{Op: wire.OpAcquired, Owner: a.Owner, Token: 5, WaitedMS: 39_000})
		r := <-got
		if r.err != nil {
			t.Fatal(r.err)
		}
		if left := time.Until(r.lock.Expires()); left != 9*time.Second-margin(10*time.Second) {
			t.Errorf("believes for %v", left)
		}
	})
}
