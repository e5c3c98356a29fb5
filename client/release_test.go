package client

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

func TestReleaseOutcomes(t *testing.T) {
	released, notHeld := wire.Reply{Op: wire.OpReleased}, wire.Reply{Op: wire.OpNotHeld}
	for _, tt := range []struct {
		name   string
		lostR  bool          // the first try's session closes without an answer
		pass   time.Duration // before the answer
		answer wire.Reply
		want   []error // nil: released
	}{
		{"released", false, 0, released, nil},
		{"not held", false, 0, notHeld, []error{ErrNotHeld}},
		{"refused", false, 0, wire.Reply{Op: wire.OpRefused, Code: wire.CodeForbidden}, []error{ErrRefused}},
		{"nonsense", false, 0, wire.Reply{Op: wire.OpPong}, []error{ErrIndeterminate}},
		{"released at the second try", true, 0, released, nil},
		{"by an earlier try within the lease", true, 0, notHeld, nil},
		{"by an earlier try or by expiry", true, 2 * time.Second, notHeld, []error{ErrNotHeld}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c := w.open()
				l := w.hold(c, "k", 4, WithLease(2*time.Second), WithoutRenewal())
				done := run(func() error { return l.Release(t.Context()) })
				r := w.expect(wire.OpRelease)
				if tt.lostR {
					_ = r.p.conn.Close()
					r = w.expect(wire.OpRelease)
				}
				if r.Token != 4 || r.key != "k" {
					t.Errorf("released token %d of %q", r.Token, r.key)
				}
				w.skew.Add(int64(tt.pass))
				r.answer(tt.answer)
				if err := <-done; tt.want != nil {
					wantKinds(t, err, tt.want...)
				} else if err != nil {
					t.Error(err)
				}
				w.quiet(time.Minute)
			})
		})
	}
}

// A release that nobody answers ends after five seconds, unknown.
func TestReleaseUnanswered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		l := w.hold(c, "k", 4, WithLease(60*time.Second))
		began := w.now()
		w.set("a", func(n *node) { n.mute = true })
		wantKinds(t, l.Release(t.Context()), ErrIndeterminate)
		if took := w.now() - began; took != 5*time.Second {
			t.Errorf("took %s", took)
		}
		w.set("a", func(n *node) { n.mute = false })
	})
}

// The deferred Release of a caller whose context has ended still frees the key.
func TestReleaseWithEndedContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		l := w.hold(c, "k", 4)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantKinds(t, l.Release(ctx), context.Canceled)
		if r := w.expect(wire.OpRelease); r.Token != 4 {
			t.Errorf("released %d", r.Token)
		}
		if l.Err() != ErrReleased {
			t.Error(l.Err())
		}
	})
}

// Release ends the renewing, also of a renewal that is under way.
func TestReleaseEndsRenewal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		l := w.hold(c, "k", 4, WithLease(30*time.Second))
		w.expect(wire.OpKeep) // not answered: it would be repeated
		done := run(func() error { return l.Release(t.Context()) })
		w.expect(wire.OpRelease).answer(wire.Reply{Op: wire.OpReleased})
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.quiet(time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.held) > 0 || len(c.renewals.locks) > 0 {
			t.Error("the client still looks after the lock")
		}
	})
}

func TestTokenRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		w.serve(func(r received) {
			switch r.Op {
			case wire.OpKeep:
				if r.Token != 7 || r.Lease != 3 {
					t.Errorf("keep %+v", r.Request)
				}
				r.answer(wire.Reply{Op: wire.OpKept})
			case wire.OpRelease:
				r.answer(wire.Reply{Op: wire.OpNotHeld})
			case wire.OpQuery:
				r.answer(wire.Reply{Op: wire.OpState, Token: 7, Holder: 8, RemainingMS: 1500, Waiters: 2})
			}
		})
		end, err := c.KeepToken(t.Context(), "k", 7, 2500*time.Millisecond)
		if err != nil || time.Until(end) != 3*time.Second-300*time.Millisecond {
			t.Errorf("KeepToken: %s, %v", time.Until(end), err)
		}
		wantKinds(t, c.ReleaseToken(t.Context(), "k", 7), ErrNotHeld)
		st, err := c.Query(t.Context(), "k")
		if want := (State{Token: 7, Owner: 8, Remaining: 1500 * time.Millisecond, Waiters: 2}); err != nil || st != want {
			t.Errorf("Query: %+v, %v", st, err)
		}
	})
}
