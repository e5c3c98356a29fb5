package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

func TestAcquireAndRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		got := acquire(t.Context(), cl, "k", WithWait(1500*time.Millisecond), WithLease(2500*time.Millisecond))
		a := p.expect(wire.OpAcquire)
		if string(a.Text) != "k" || a.Wait != 2 || a.Lease != 3 || a.Owner == 0 {
			t.Fatalf("sent %+v", a)
		}
		p.grant(a, 41)
		r := <-got
		if r.err != nil || r.lock.Key() != "k" || r.lock.Token() != 41 || r.lock.Owner() != a.Owner || r.lock.Lease() != 3*time.Second {
			t.Fatalf("got %+v, %v", r.lock, r.err)
		}
		if left := time.Until(r.lock.Expires()); left > 3*time.Second || left < 2*time.Second {
			t.Errorf("believes for %v", left)
		}
		ctx := r.lock.Context()
		done := background(func() error { return r.lock.Release(t.Context()) })
		rel := p.expect(wire.OpRelease)
		if rel.Token != 41 || string(rel.Text) != "k" || rel.Owner == a.Owner {
			t.Fatalf("sent %+v", rel)
		}
		p.reply(wire.Reply{Op: wire.OpReleased, Owner: rel.Owner})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := context.Cause(ctx); !errors.Is(err, ErrReleased) {
			t.Errorf("context ended with %v", err)
		}
		select {
		case <-r.lock.Lost():
			t.Error("a released lock is not lost")
		default:
		}
		// Releasing again does nothing and says so.
		wantErr(t, r.lock.Release(t.Context()), ErrNotHeld, ErrReleased)
		p.quiet(20 * time.Second) // no renewal goes on
	})
}

func TestRepliesInAnyOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		const n = 20
		var got [n]<-chan acquiring
		var sent [n]wire.Request
		for i := range n {
			got[i] = acquire(t.Context(), cl, fmt.Sprint("k", i))
		}
		for range n {
			a := p.expect(wire.OpAcquire)
			var i int
			_, _ = fmt.Sscanf(string(a.Text), "k%d", &i)
			sent[i] = a
		}
		for i := n - 1; i >= 0; i-- {
			switch i % 3 {
			case 0:
				p.grant(sent[i], uint64(100+i))
			case 1:
				p.reply(wire.Reply{Op: wire.OpTimeout, Owner: sent[i].Owner})
			case 2:
				p.reply(wire.Reply{Op: wire.OpBusy, Owner: sent[i].Owner})
			}
		}
		for i := range n {
			r := <-got[i]
			switch i % 3 {
			case 0:
				if r.err != nil || r.lock.Token() != uint64(100+i) {
					t.Fatalf("%d: %v", i, r.err)
				}
			case 1:
				wantErr(t, r.err, ErrTimeout)
			case 2:
				wantErr(t, r.err, ErrBusy)
			}
		}
	})
}

func TestRefusedIsDefinitive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		got := acquire(t.Context(), cl, "k")
		a := p.expect(wire.OpAcquire)
		p.reply(wire.Reply{Op: wire.OpRefused, Code: wire.CodeForbidden, Owner: a.Owner, Text: []byte("not yours")})
		r := <-got
		wantErr(t, r.err, ErrRefused)
		var refusal *wire.Refusal
		if !errors.As(r.err, &refusal) || refusal.Code != wire.CodeForbidden {
			t.Errorf("error %v has no refusal", r.err)
		}
		p.quiet(time.Minute)
	})
}

func TestBadArgumentsNeverReachTheServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		for name, f := range map[string]func() error{
			"empty key":   func() error { _, err := cl.Acquire(t.Context(), ""); return err },
			"newline":     func() error { _, err := cl.Acquire(t.Context(), "a\nb"); return err },
			"long wait":   func() error { _, err := cl.Acquire(t.Context(), "k", WithWait(256*time.Second)); return err },
			"minus wait":  func() error { _, err := cl.Acquire(t.Context(), "k", WithWait(-1)); return err },
			"no lease":    func() error { _, err := cl.Acquire(t.Context(), "k", WithLease(0)); return err },
			"long lease":  func() error { _, err := cl.Acquire(t.Context(), "k", WithLease(256*time.Second)); return err },
			"query":       func() error { _, err := cl.Query(t.Context(), ""); return err },
			"release":     func() error { return cl.ReleaseToken(t.Context(), "\xff", 1) },
			"keep":        func() error { _, err := cl.KeepToken(t.Context(), "", 1, time.Second); return err },
			"keep, lease": func() error { _, err := cl.KeepToken(t.Context(), "k", 1, time.Hour); return err },
		} {
			if err := f(); !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
		}
		p.quiet(time.Second)
	})
}

// "If even one byte of an acquire may have been sent and no reply was confirmed,
// the client must not resend it by itself."
func TestPossiblySentIsNeverSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		got := acquire(t.Context(), cl, "k", WithLease(2*time.Second))
		a := p.expect(wire.OpAcquire)
		_ = p.conn.Close()
		r := <-got
		wantErr(t, r.err, ErrIndeterminate)
		var e *Error
		_ = errors.As(r.err, &e)
		if left := time.Until(e.TakenUntil); left < 2*time.Second || left > 40*time.Second {
			t.Errorf("taken for %v", left)
		}
		// What comes instead is the question whether it was granted.
		p = w.leader("a:1")
		for range 1 + len(reclaimPauses) {
			q := p.expect(wire.OpQuery)
			p.reply(wire.Reply{Op: wire.OpState, Owner: q.Owner, Token: 9, Holder: a.Owner + 1, RemainingMS: 1000})
		}
		p.quiet(time.Minute)
	})
}

// An orphan is recognised by its owner and released by its exact token.
func TestOrphanIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		got := acquire(t.Context(), cl, "k")
		a := p.expect(wire.OpAcquire)
		_ = p.conn.Close()
		wantErr(t, (<-got).err, ErrIndeterminate)
		begin := time.Now()
		p = w.leader("a:1")
		q := p.expect(wire.OpQuery)
		p.reply(wire.Reply{Op: wire.OpState, Owner: q.Owner, Token: 77, Holder: a.Owner, RemainingMS: 1000})
		rel := p.expect(wire.OpRelease)
		if rel.Token != 77 || string(rel.Text) != "k" {
			t.Fatalf("sent %+v", rel)
		}
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("took %v", d)
		}
		p.reply(wire.Reply{Op: wire.OpReleased, Owner: rel.Owner})
		p.quiet(time.Minute)
	})
}

// "If it may already have been sent, its exact session is closed and the result
// is Indeterminate." The other session goes on.
func TestDeadlineClosesExactlyThatSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open(WithSessions(2))
		// Enough of a load for a second session.
		var got []<-chan acquiring
		for i := range growLoad + 1 {
			got = append(got, acquire(t.Context(), cl, fmt.Sprint("old", i), WithWait(MaxWait)))
			p.expect(wire.OpAcquire)
		}
		second := w.leader("a:1")
		synctest.Wait()
		begin := time.Now()
		late := acquire(t.Context(), cl, "late", WithWait(3*time.Second))
		second.expect(wire.OpAcquire)
		go p.serve((*peer).alive) // the first session lives
		second.gone()             // so does the second, but it does not answer that one acquire
		wantErr(t, (<-late).err, ErrIndeterminate)
		if d := time.Since(begin); d != 8*time.Second {
			t.Errorf("after %v, want the wait and 5 s", d)
		}
		for i, ch := range got {
			select {
			case r := <-ch:
				t.Fatalf("acquire %d on the other session ended: %v", i, r.err)
			default:
			}
		}
	})
}

// pinged checks that the session still works.
func pinged(cl *Client, p *peer) error {
	done := background(func() error { return cl.Ping(context.Background()) })
	ping := p.expect(wire.OpPing)
	p.reply(wire.Reply{Op: wire.OpPong, Owner: ping.Owner})
	return <-done
}
