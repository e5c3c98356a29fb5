package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

func TestRenewalAtAThird(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		l := w.hold(c, "k", 4, WithLease(9*time.Second))
		from := w.now()
		for range 5 {
			r := w.expect(wire.OpKeep)
			if r.at-from != 3*time.Second || r.Token != 4 || r.Lease != 9 || r.key != "k" {
				t.Errorf("renewal %s after the last: %+v", r.at-from, r.Request)
			}
			from = r.at
			time.Sleep(time.Second) // the answer takes its time, the lease counts from the sending
			r.answer(wire.Reply{Op: wire.OpKept})
			synctest.Wait()
			if left := time.Until(l.Expires()); left != 8*time.Second-500*time.Millisecond {
				t.Errorf("believes for %s", left)
			}
		}
	})
}

func TestRenewalFollowsTheLeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		l := w.hold(c, "k", 4, WithLease(15*time.Second))
		w.set("a", func(n *node) { n.leads, n.hint = false, "" })
		time.AfterFunc(8*time.Second, func() { w.set("b", func(n *node) { n.leads = true }) })
		r := w.expect(wire.OpKeep)
		if r.p.n.addr != "b" {
			t.Errorf("renewed at %s", r.p.n.addr)
		}
		r.answer(wire.Reply{Op: wire.OpKept})
		synctest.Wait()
		if l.Err() != nil {
			t.Error(l.Err())
		}
	})
}

// A renewal that is not answered is repeated on another session.
func TestRenewalIsRepeatedElsewhere(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open(WithSessions(2))
		synctest.Wait()
		l := w.hold(c, "k", 4, WithLease(12*time.Second))
		w.set("a", func(n *node) { n.mute = true })
		r1, r2 := w.expect(wire.OpKeep), w.expect(wire.OpKeep)
		if r1.p == r2.p || r1.Token != r2.Token {
			t.Error("not on another session")
		}
		if d := r2.at - r1.at; d != 2*time.Second {
			t.Errorf("repeated after %s, want a sixth of the lease", d)
		}
		r2.answer(wire.Reply{Op: wire.OpKept})
		synctest.Wait()
		if left := l.Expires().Sub(time.Now()); left != 11500*time.Millisecond {
			t.Errorf("believes for %s", left)
		}
		w.set("a", func(n *node) { n.mute = false })
	})
}

// Under a server that has gone silent Lost comes at send + lease - margin, to
// the nanosecond, and the context ends with it.
func TestLostAtTheConservativeEnd(t *testing.T) {
	for name, renewed := range map[string]bool{"never renewed": false, "renewed once": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c := w.open()
				l := w.hold(c, "k", 4, WithLease(10*time.Second))
				sent := w.now()
				if renewed {
					r := w.expect(wire.OpKeep)
					time.Sleep(500 * time.Millisecond)
					r.answer(wire.Reply{Op: wire.OpKept})
					sent = r.at
				}
				ctx := l.Context()
				<-l.Lost()
				if end := w.now() - sent; end != 9500*time.Millisecond {
					t.Errorf("lost %s after the sending, want 9.5s", end)
				}
				if context.Cause(ctx) != ErrLost || l.Err() != ErrLost {
					t.Errorf("cause %v, Err %v", context.Cause(ctx), l.Err())
				}
				err := l.Keep(t.Context())
				wantKinds(t, err, ErrNotHeld, ErrLost)
			})
		})
	}
}

// A reply that says otherwise ends the lock at once.
func TestNotHeldIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		l := w.hold(c, "k", 4, WithLease(9*time.Second))
		r := w.expect(wire.OpKeep)
		r.answer(wire.Reply{Op: wire.OpNotHeld})
		<-l.Lost()
		if w.now() != r.at {
			t.Errorf("lost %s after the answer", w.now()-r.at)
		}
		wantKinds(t, l.Release(t.Context()), ErrNotHeld, ErrLost)
		w.expect(wire.OpRelease) // in the background: by its exact token it harms nobody
	})
}

func TestWithoutRenewal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		l := w.hold(c, "k", 4, WithLease(9*time.Second), WithoutRenewal())
		began := w.now()
		time.Sleep(8 * time.Second)
		done := run(func() error { return l.Keep(t.Context()) })
		w.expect(wire.OpKeep).answer(wire.Reply{Op: wire.OpKept})
		if err := <-done; err != nil {
			t.Error(err)
		}
		<-l.Lost()
		if d := w.now() - began; d != 17*time.Second-500*time.Millisecond {
			t.Errorf("lost after %s", d)
		}
		if n := w.seen(wire.OpKeep); n != 1 {
			t.Errorf("%d renewals", n)
		}
	})
}

// Err reads the clock: right at once in a process that slept past the lease,
// before any timer of it has fired.
func TestErrAfterSuspension(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		l := w.hold(c, "k", 4, WithLease(10*time.Second))
		w.skew.Add(int64(9500 * time.Millisecond))
		if l.Context().Err() == nil || l.Err() != ErrLost {
			t.Errorf("Err = %v", l.Err())
		}
		select {
		case <-l.Lost():
		default:
			t.Error("Lost is open")
		}
		// And without being asked it is noticed by the next nap's end.
		l2 := w.hold(c, "k2", 5, WithLease(10*time.Second))
		w.skew.Add(int64(time.Minute))
		began := w.now()
		<-l2.Lost()
		if took := w.now() - began; took > maxNap {
			t.Errorf("noticed after %s", took)
		}
	})
}

func TestKeepOutcomes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		l := w.hold(c, "k", 4, WithLease(60*time.Second), WithoutRenewal())
		for _, tt := range []struct {
			reply wire.Reply
			kind  error
		}{
			{wire.Reply{Op: wire.OpRefused, Code: wire.CodeForbidden}, ErrRefused},
			{wire.Reply{Op: wire.OpPong}, ErrIndeterminate},
		} {
			done := run(func() error { return l.Keep(t.Context()) })
			w.expect(wire.OpKeep).answer(tt.reply)
			wantKinds(t, <-done, tt.kind)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantKinds(t, l.Keep(ctx), ErrIndeterminate)
		w.expect(wire.OpKeep)
		if l.Err() != nil {
			t.Errorf("an unanswered renewal ended the lock: %v", l.Err())
		}
	})
}
