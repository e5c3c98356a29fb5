package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

func kept(p *peer, k wire.Request) { p.reply(wire.Reply{Op: wire.OpKept, Owner: k.Owner}) }

func isLost(l *Lock) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func TestRenewalAtEveryThird(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		begin := time.Now()
		lock := p.held(cl, "k", 7, WithLease(9*time.Second))
		for i := range 5 {
			k := p.expect(wire.OpKeep)
			if k.Token != 7 || k.Lease != 9 || string(k.Text) != "k" {
				t.Fatalf("sent %+v", k)
			}
			if d := time.Since(begin); d != time.Duration(i+1)*3*time.Second {
				t.Errorf("renewal %d after %v", i, d)
			}
			kept(p, k)
			synctest.Wait()
			if left := time.Until(lock.Expires()); left != 9*time.Second-margin(9*time.Second) {
				t.Errorf("believes for %v", left)
			}
		}
		if isLost(lock) || lock.Err() != nil || lock.Context().Err() != nil {
			t.Error("lost")
		}
	})
}

// The client stops believing before the server can stop protecting: the lease of
// the last renewal that was answered, reckoned from before it was sent.
func TestLostAtTheConservativeEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		begin := time.Now()
		lock := p.held(cl, "k", 7, WithLease(9*time.Second))
		ctx := lock.Context()
		k := p.expect(wire.OpKeep) // after 3 s
		time.Sleep(500 * time.Millisecond)
		kept(p, k)
		w.remove("a:1")
		_ = p.conn.Close()
		<-ctx.Done()
		if d, want := time.Since(begin), 12*time.Second-margin(9*time.Second); d != want {
			t.Errorf("lost after %v, want %v", d, want)
		}
		synctest.Wait()
		if !isLost(lock) || !errors.Is(lock.Err(), ErrLost) || !errors.Is(context.Cause(ctx), ErrLost) {
			t.Errorf("lost %v, %v, %v", isLost(lock), lock.Err(), context.Cause(ctx))
		}
		err := lock.Release(t.Context())
		wantErr(t, err, ErrNotHeld, ErrLost, errLeaseOver)
		wantErr(t, lock.Keep(t.Context()), ErrNotHeld)
		if time.Until(lock.Expires()) > 0 {
			t.Error("expires later")
		}
	})
}

func TestNotHeldLosesTheLockAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		begin := time.Now()
		lock := p.held(cl, "k", 7, WithLease(9*time.Second))
		k := p.expect(wire.OpKeep)
		p.reply(wire.Reply{Op: wire.OpNotHeld, Owner: k.Owner})
		<-lock.Lost()
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("after %v", d)
		}
		wantErr(t, lock.Release(t.Context()), ErrNotHeld, ErrLost, errNotHolder)
		p.quiet(time.Minute) // nothing is left to give back
	})
}

// A change of leader in the middle of a lease is ridden out.
func TestRenewalAcrossLeaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		lock := p.held(cl, "k", 7, WithLease(9*time.Second))
		k := p.expect(wire.OpKeep)
		w.remove("a:1")
		_ = p.conn.Close()
		time.Sleep(4 * time.Second) // an election that takes its time
		w.add("a:1")
		p = w.leader("a:1")
		again := p.expect(wire.OpKeep)
		if again.Token != k.Token {
			t.Fatalf("sent %+v", again)
		}
		sent := time.Now()
		kept(p, again)
		synctest.Wait()
		if isLost(lock) || time.Until(lock.Expires()) != time.Until(sent.Add(9*time.Second-margin(9*time.Second))) {
			t.Errorf("lost %v, expires %v", isLost(lock), time.Until(lock.Expires()))
		}
		p.expect(wire.OpKeep)
	})
}

// A server that takes a keep and says nothing more is left for another session
// while there is still time.
func TestRenewalLeavesASilentSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		lock := p.held(cl, "k", 7, WithLease(3*time.Second))
		p.expect(wire.OpKeep) // after 1 s
		go p.serve(func(*peer, wire.Request) {})
		begin := time.Now()
		q := w.leader("a:1")
		kept(q, q.expect(wire.OpKeep))
		synctest.Wait()
		if isLost(lock) || time.Since(begin) > time.Second {
			t.Errorf("lost %v after %v", isLost(lock), time.Since(begin))
		}
	})
}

// A late answer to a keep that was given up says nothing about the later one, not
// even on the same session.
func TestLateAnswerToAnEarlierKeep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		lock := p.held(cl, "k", 7, WithLease(6*time.Second))
		w.set("a:1", func(n *node) { n.hole = true })
		first := p.expect(wire.OpKeep) // after 2 s
		if ping := p.expect(wire.OpPing); ping.Owner == first.Owner {
			t.Fatal("same number")
		} // patience is over: the session is asked for a sign of life
		time.Sleep(100 * time.Millisecond)
		p.reply(wire.Reply{Op: wire.OpPong, Owner: 1}) // any sign
		second := p.expect(wire.OpKeep)
		before := time.Until(lock.Expires())
		kept(p, first)
		synctest.Wait()
		if after := time.Until(lock.Expires()); after > before {
			t.Errorf("believed for %v, now for %v", before, after)
		}
		kept(p, second)
		synctest.Wait()
		if after := time.Until(lock.Expires()); after <= before {
			t.Errorf("believed for %v, still for %v", before, after)
		}
	})
}

func TestWithoutRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		lock := p.held(cl, "k", 7, WithLease(3*time.Second), WithoutRenewal())
		p.quiet(2 * time.Second)
		done := background(func() error { return lock.Keep(t.Context()) })
		kept(p, p.expect(wire.OpKeep))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lock.Expires()); left != 3*time.Second-margin(3*time.Second) {
			t.Errorf("believes for %v", left)
		}
		<-lock.Lost()
		// Released all the same: the servers may protect it a moment longer.
		done = background(func() error { return lock.Release(t.Context()) })
		if rel := p.expect(wire.OpRelease); rel.Token != 7 {
			t.Errorf("sent %+v", rel)
		}
		wantErr(t, <-done, ErrNotHeld, ErrLost)
	})
}

// A machine that was suspended: Go's timers stood still, the client's clock did
// not. The first look says lost, and the alarm follows.
func TestSuspension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		var slept atomic.Int64
		clock := testClock()
		cl, p := w.open(withClock(func() time.Duration { return clock() + time.Duration(slept.Load()) }))
		first := p.held(cl, "k", 7, WithLease(20*time.Second))
		second := p.held(cl, "l", 8, WithLease(20*time.Second))
		slept.Store(int64(time.Hour))
		begin := time.Now()
		if err := first.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("first look: %v", err)
		}
		if time.Until(second.Expires()) > 0 {
			t.Error("still believed in")
		}
		<-second.Lost()
		if d := time.Since(begin); d > pollInterval {
			t.Errorf("noticed after %v", d)
		}
	})
}

// What is looked at after a long sleep is judged by the clock, even where the
// alarm has not gone off yet.
func TestSuspensionBeforeAnyAlarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		var slept atomic.Int64
		clock := testClock()
		cl, p := w.open(withClock(func() time.Duration { return clock() + time.Duration(slept.Load()) }))

		// At the gate.
		cfg := acquireConfig{wait: time.Second, lease: MaxLease}
		k := cl.startAcquire("k", &cfg)
		p.grant(p.expect(wire.OpAcquire), 7)
		synctest.Wait()
		slept.Add(int64(10 * time.Second))
		_, err := cl.collect(t.Context(), k)
		wantErr(t, err, ErrIndeterminate)
		rel := p.expect(wire.OpRelease)
		p.reply(wire.Reply{Op: wire.OpReleased, Owner: rel.Owner})

		// When a renewal is answered.
		lock := p.held(cl, "k", 8, WithLease(2*time.Second), WithoutRenewal())
		done := background(func() error { return lock.Keep(t.Context()) })
		keep := p.expect(wire.OpKeep)
		slept.Add(int64(1900 * time.Millisecond))
		kept(p, keep)
		wantErr(t, <-done, ErrNotHeld)

		// In the writer.
		first := acquire(t.Context(), cl, "first", WithWait(time.Minute))
		synctest.Wait() // its Write is stuck
		second := acquire(t.Context(), cl, "second", WithWait(time.Second))
		synctest.Wait()
		slept.Add(int64(2 * time.Second))
		p.grant(p.expect(wire.OpAcquire), 9)
		if r := <-first; r.err != nil {
			t.Error(r.err)
		}
		wantErr(t, (<-second).err, ErrTimeout)
	})
}
