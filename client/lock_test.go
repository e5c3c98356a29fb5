package client

import (
	"context"
	"errors"
	"strings"
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

func TestDo(t *testing.T) {
	t.Run("happy", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			c := w.open()
			done := run(func() error {
				return c.Do(t.Context(), "k", func(ctx context.Context) error { time.Sleep(time.Second); return ctx.Err() })
			})
			a := w.expect(wire.OpAcquire)
			a.grant(1)
			r := w.expect(wire.OpRelease)
			if r.at-a.at != time.Second {
				t.Errorf("released %s after the grant", r.at-a.at)
			}
			r.answer(wire.Reply{Op: wire.OpReleased})
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("lost", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			c := w.open()
			var ended, returned time.Duration
			done := run(func() error {
				return c.Do(t.Context(), "k", func(ctx context.Context) error {
					<-ctx.Done()
					ended = w.now()
					if context.Cause(ctx) != ErrLost {
						t.Errorf("cause %v", context.Cause(ctx))
					}
					time.Sleep(3 * time.Second) // to clean up
					returned = w.now()
					return nil
				}, WithLease(10*time.Second))
			})
			a := w.expect(wire.OpAcquire)
			a.grant(1)
			err := <-done
			// Expired, not taken by another; and an error though f had none.
			wantKinds(t, err, ErrNotHeld, ErrLost)
			if ended-a.at != 9500*time.Millisecond {
				t.Errorf("the context ended %s after the grant", ended-a.at)
			}
			if w.now() < returned || returned == 0 {
				t.Error("Do did not wait for its function")
			}
		})
	})
	t.Run("panic", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			c := w.open()
			w.serve(func(r received) {
				if r.Op == wire.OpAcquire {
					r.grant(1)
				} else {
					r.answer(wire.Reply{Op: wire.OpReleased})
				}
			})
			func() {
				defer func() { _ = recover() }()
				_ = c.Do(t.Context(), "k", func(context.Context) error { panic("x") })
			}()
			if w.seen(wire.OpRelease) != 1 {
				t.Error("not released")
			}
		})
	})
	t.Run("caller's context", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			c := w.open()
			ctx, cancel := context.WithCancel(t.Context())
			own := errors.New("own")
			done := run(func() error {
				return c.Do(ctx, "k", func(ctx context.Context) error { <-ctx.Done(); return own })
			})
			w.expect(wire.OpAcquire).grant(1)
			time.Sleep(time.Second)
			cancel()
			w.expect(wire.OpRelease).answer(wire.Reply{Op: wire.OpReleased})
			if err := <-done; !errors.Is(err, own) || strings.Contains(err.Error(), "\n") {
				t.Error(err)
			}
		})
	})
}
