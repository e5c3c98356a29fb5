package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

func TestCancelAnsweredWithTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		ctx, cancel := context.WithCancel(t.Context())
		got := acquire(ctx, cl, "k")
		a := p.expect(wire.OpAcquire)
		cancel()
		if c := p.expect(wire.OpCancel); c.Owner != a.Owner {
			t.Fatalf("cancelled %d, want %d", c.Owner, a.Owner)
		}
		p.reply(wire.Reply{Op: wire.OpTimeout, Owner: a.Owner})
		r := <-got
		wantErr(t, r.err, context.Canceled)
		if errors.Is(r.err, ErrIndeterminate) || errors.Is(r.err, ErrTimeout) {
			t.Errorf("definitely not granted, because of the context: %v", r.err)
		}
		if err := pinged(cl, p); err != nil {
			t.Errorf("the session is gone: %v", err)
		}
	})
}

func TestCancelMeetsGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := acquire(ctx, cl, "k")
		a := p.expect(wire.OpAcquire)
		p.expect(wire.OpCancel)
		p.grant(a, 12)
		if rel := p.expect(wire.OpRelease); rel.Token != 12 || string(rel.Text) != "k" {
			t.Fatalf("sent %+v", rel)
		}
		wantOnlyIndeterminate(t, (<-got).err)
		if err := pinged(cl, p); err != nil {
			t.Errorf("the session is gone: %v", err)
		}
	})
}

func TestCancelUnanswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		got := acquire(ctx, cl, "k")
		p.expect(wire.OpAcquire)
		p.expect(wire.OpCancel)
		p.gone()
		wantOnlyIndeterminate(t, (<-got).err)
		if d := time.Since(begin); d != time.Second+cancelGrace {
			t.Errorf("took %v", d)
		}
	})
}

func TestCancelMeetsMoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		ctx, cancel := context.WithCancel(t.Context())
		got := acquire(ctx, cl, "k")
		a := p.expect(wire.OpAcquire)
		cancel()
		p.expect(wire.OpCancel)
		p.moved(a.Owner, "")
		r := <-got
		wantErr(t, r.err, context.Canceled)
		if errors.Is(r.err, ErrIndeterminate) {
			t.Errorf("definitely not granted: %v", r.err)
		}
	})
}

func TestCancelUnsent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		w.remove("a:1")
		_ = p.conn.Close()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := cl.Acquire(ctx, "k")
		wantErr(t, err, context.DeadlineExceeded)
		if errors.Is(err, ErrIndeterminate) {
			t.Errorf("definitely not sent: %v", err)
		}
		if d := time.Since(begin); d != time.Second {
			t.Errorf("took %v", d)
		}
		_, err = cl.Acquire(ctx, "k") // ended before it began
		wantErr(t, err, context.DeadlineExceeded)
	})
}

func TestCloseSettlesEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		lock := p.held(cl, "held", 3)
		ctx := lock.Context()
		waiting := acquire(t.Context(), cl, "answered")
		a := p.expect(wire.OpAcquire)
		silent := acquire(t.Context(), cl, "silent")
		p.expect(wire.OpAcquire)
		closed := background(func() error { cl.Close(); return nil })
		for range 2 {
			if c := p.expect(wire.OpCancel); c.Owner == a.Owner {
				p.reply(wire.Reply{Op: wire.OpTimeout, Owner: a.Owner})
			}
		}
		wantErr(t, (<-waiting).err, ErrClosed)
		p.gone() // nothing was released
		r := <-silent
		wantErr(t, r.err, ErrIndeterminate)
		if errors.Is(r.err, ErrClosed) {
			t.Errorf("%v matches a definite kind", r.err)
		}
		<-closed
		<-lock.Lost()
		if err := context.Cause(ctx); !errors.Is(err, ErrClosed) {
			t.Errorf("context ended with %v", err)
		}
		_, err := cl.Acquire(t.Context(), "k")
		wantErr(t, err, ErrClosed)
		wantErr(t, cl.Ping(t.Context()), ErrClosed)
		wantErr(t, lock.Release(t.Context()), ErrNotHeld, ErrClosed)
		cl.Close()
	})
}

func TestReleaseOnClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open(WithReleaseOnClose())
		p.held(cl, "k", 3)
		begin := time.Now()
		closed := background(func() error { cl.Close(); return nil })
		rel := p.expect(wire.OpRelease)
		if rel.Token != 3 {
			t.Fatalf("sent %+v", rel)
		}
		p.reply(wire.Reply{Op: wire.OpReleased, Owner: rel.Owner})
		<-closed
		if d := time.Since(begin); d != 0 {
			t.Errorf("took %v", d)
		}
	})
}
