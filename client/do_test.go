package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

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
