package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// Context ends while the request is queued at the server: cancel, then one of
// three.
func TestCancel(t *testing.T) {
	start := func(t *testing.T, w *world) (c *Client, a, cancel received, done <-chan outcome) {
		c = w.open()
		ctx, stop := context.WithCancel(t.Context())
		done = w.acquire(ctx, c, "k")
		a = w.expect(wire.OpAcquire)
		time.Sleep(time.Second)
		stop()
		cancel = w.expect(wire.OpCancel)
		if cancel.Owner != a.Owner || cancel.p != a.p {
			t.Errorf("cancel of %d, acquire %d", cancel.Owner, a.Owner)
		}
		return c, a, cancel, done
	}
	t.Run("timeout", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			c, a, _, done := start(t, w)
			a.answer(wire.Reply{Op: wire.OpTimeout})
			wantKinds(t, (<-done).err, context.Canceled)
			go func() { w.expect(wire.OpPing).answer(wire.Reply{Op: wire.OpPong}) }()
			if err := c.Ping(t.Context()); err != nil || len(w.peers) != 1 {
				t.Errorf("the session did not stay: %v", err)
			}
		})
	})
	t.Run("acquired", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			_, a, _, done := start(t, w)
			a.grant(8)
			wantKinds(t, (<-done).err, ErrIndeterminate)
			r := w.expect(wire.OpRelease)
			if r.Token != 8 || r.p != a.p {
				t.Errorf("released %d", r.Token)
			}
			r.answer(wire.Reply{Op: wire.OpReleased})
			w.quiet(time.Minute)
		})
	})
	t.Run("acquired, then closed", func(t *testing.T) {
		for _, answered := range []bool{true, false} {
			inWorld(t, func(t *testing.T, w *world) {
				c, a, _, done := start(t, w)
				a.grant(8)
				<-done
				began, closed := w.now(), make(chan time.Duration, 1)
				go func() { c.Close(); closed <- w.now() }()
				r := w.expect(wire.OpRelease) // although the client closes
				want := closeGrace
				if answered {
					time.Sleep(300 * time.Millisecond)
					r.answer(wire.Reply{Op: wire.OpReleased})
					want = 300 * time.Millisecond
				}
				if took := <-closed - began; took != want {
					t.Errorf("answered %v: close took %s", answered, took)
				}
			})
		}
	})
	t.Run("silence", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			_, a, _, done := start(t, w)
			began := w.now()
			o := <-done
			wantKinds(t, o.err, ErrIndeterminate)
			if took := o.at - began; took != cancelGrace {
				t.Errorf("waited %s for the answer", took)
			}
			if q := w.expect(wire.OpQuery); q.p == a.p {
				t.Error("the session of the cancelled acquire was not closed")
			}
		})
	})
	t.Run("moved", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			_, a, _, done := start(t, w)
			a.answer(wire.Reply{Op: wire.OpMoved})
			wantKinds(t, (<-done).err, context.Canceled)
			w.quiet(time.Minute)
		})
	})
}

func TestContextAlreadyEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			wantKinds(t, second(c.Acquire(ctx, "k")), context.Canceled)
			wantKinds(t, c.Ping(ctx), context.Canceled)
		}
		_, err := Open(ctx, []string{"a"}, WithDialer(w.dial), withClock(w.now))
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		w.quiet(time.Minute)
	})
}

// A context that ends before the request is sent leaves nothing behind.
func TestContextEndsBeforeSending(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a", func(n *node) { n.deaf = true })
		c := w.open()
		stuck := w.acquire(t.Context(), c, "stuck")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantKinds(t, second(c.Acquire(ctx, "k")), context.DeadlineExceeded)
		w.set("a", func(n *node) { n.deaf = false })
		close(w.peer(0).woken)
		w.expect(wire.OpAcquire).grant(1)
		if o := <-stuck; o.err != nil {
			t.Error(o.err)
		}
	})
}
