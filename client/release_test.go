package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

func TestReleaseIsRetried(t *testing.T) {
	for name, tc := range map[string]struct {
		answer wire.Op
		late   bool
		want   error
	}{
		"released by the second try":       {wire.OpReleased, false, nil},
		"the first had done it":            {wire.OpNotHeld, false, nil},
		"nobody knows: the lease was over": {wire.OpNotHeld, true, ErrNotHeld},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newNetwork(t, "a:1")
				cl, p := w.open()
				lock := p.held(cl, "k", 7, WithLease(time.Second), WithoutRenewal())
				done := background(func() error { return lock.Release(t.Context()) })
				first := p.expect(wire.OpRelease)
				_ = p.conn.Close()
				p = w.leader("a:1")
				again := p.expect(wire.OpRelease)
				if again.Token != first.Token || string(again.Text) != "k" {
					t.Fatalf("sent %+v after %+v", again, first)
				}
				if tc.late {
					time.Sleep(950 * time.Millisecond)
				}
				p.reply(wire.Reply{Op: tc.answer, Owner: again.Owner})
				err := <-done
				if tc.want == nil && err != nil || tc.want != nil && !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
			})
		})
	}
}

func TestReleaseWithoutAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		lock := p.held(cl, "k", 7)
		other := p.held(cl, "l", 8)
		w.set("a:1", func(n *node) { n.hole = true })
		begin := time.Now()
		done := background(func() error { return lock.Release(t.Context()) })
		p.expect(wire.OpRelease)
		wantErr(t, <-done, ErrIndeterminate)
		if d := time.Since(begin); d != transport {
			t.Errorf("took %v", d)
		}
		_ = p.conn.Close()
		synctest.Wait()
		wantErr(t, other.Release(t.Context()), ErrUnavailable)
	})
}

// The caller of a release may go; the release goes on.
func TestReleaseOutlivesItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		lock := p.held(cl, "k", 7)
		_ = p.conn.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantOnlyIndeterminate(t, lock.Release(ctx))
		p = w.leader("a:1")
		if rel := p.expect(wire.OpRelease); rel.Token != 7 {
			t.Errorf("sent %+v", rel)
		}
	})
}

func TestReleaseOfAnotherToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		done := background(func() error { return cl.ReleaseToken(t.Context(), "k", 5) })
		p.reply(wire.Reply{Op: wire.OpNotHeld, Owner: p.expect(wire.OpRelease).Owner})
		wantErr(t, <-done, ErrNotHeld)

		kept := make(chan time.Time, 1)
		done = background(func() error {
			until, err := cl.KeepToken(t.Context(), "k", 5, 10*time.Second)
			kept <- until
			return err
		})
		p.reply(wire.Reply{Op: wire.OpKept, Owner: p.expect(wire.OpKeep).Owner})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if left := time.Until(<-kept); left != 10*time.Second-margin(10*time.Second) {
			t.Errorf("kept for %v", left)
		}
		states := make(chan State, 1)
		done = background(func() error {
			st, err := cl.Query(t.Context(), "k")
			states <- st
			return err
		})
		p.reply(wire.Reply{Op: wire.OpState, Owner: p.expect(wire.OpQuery).Owner, Token: 5, Holder: 6, RemainingMS: 1500, Waiters: 2})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if st := <-states; st != (State{Token: 5, Owner: 6, Remaining: 1500 * time.Millisecond, Waiters: 2}) {
			t.Errorf("state %+v", st)
		}
	})
}

func TestDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		mine := errors.New("mine")
		done := background(func() error {
			return cl.Do(t.Context(), "k", func(ctx context.Context) error {
				time.Sleep(time.Second)
				if ctx.Err() != nil {
					t.Error("ended early")
				}
				return mine
			})
		})
		p.grant(p.expect(wire.OpAcquire), 4)
		rel := p.expect(wire.OpRelease)
		p.reply(wire.Reply{Op: wire.OpReleased, Owner: rel.Owner})
		if err := <-done; err != mine { //nolint:errorlint // exactly this
			t.Errorf("%v", err)
		}
	})
}

// The function is told before the end, waited for, and only then is released.
func TestDoWarnsInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		begin := time.Now()
		done := background(func() error {
			return cl.Do(t.Context(), "k", func(ctx context.Context) error {
				<-ctx.Done()
				lease := 5 * time.Second
				if d, want := time.Since(begin), lease-margin(lease)-earlyBy(lease); d != want {
					t.Errorf("told after %v, want %v", d, want)
				}
				if !errors.Is(context.Cause(ctx), ErrLost) {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				time.Sleep(2 * time.Second) // too slow
				return ctx.Err()
			}, WithLease(5*time.Second), WithoutRenewal())
		})
		p.grant(p.expect(wire.OpAcquire), 4)
		rel := p.expect(wire.OpRelease)
		if rel.Token != 4 || time.Since(begin) < 5*time.Second {
			t.Errorf("released %d after %v", rel.Token, time.Since(begin))
		}
		wantErr(t, <-done, context.Canceled, ErrNotHeld)
	})
}
