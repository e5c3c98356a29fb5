package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// A wait of zero is zero on the wire however long the connection took; its own
// five seconds bound the transport.
func TestImmediateAttempt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		w.set("a", func(n *node) { n.leads, n.hint = false, "" })
		began := w.now()
		done := run(func() error { return second(c.TryAcquire(t.Context(), "k")) })
		time.Sleep(3 * time.Second)
		w.set("a", func(n *node) { n.leads = true })
		r := w.expect(wire.OpAcquire)
		if r.Wait != 0 || r.at < began+3*time.Second {
			t.Errorf("wait %d on the wire at %s", r.Wait, r.at-began)
		}
		r.answer(wire.Reply{Op: wire.OpTimeout})
		wantKinds(t, <-done, ErrTimeout)

		w.set("a", func(n *node) { n.leads = false })
		began = w.now()
		wantKinds(t, second(c.TryAcquire(t.Context(), "k")), ErrUnavailable)
		if took := w.now() - began; took != 5*time.Second {
			t.Errorf("gave up after %s, want 5s", took)
		}
		w.set("a", func(n *node) { n.leads = true })
		began = w.now()
		done = run(func() error { return second(c.TryAcquire(t.Context(), "k")) })
		w.expect(wire.OpAcquire)
		wantKinds(t, <-done, ErrIndeterminate)
		if took := w.now() - began; took != 5*time.Second {
			t.Errorf("gave up after %s, want 5s", took)
		}
	})
}

// What is left of the wait when the bytes go, rounded up, and not a fresh one.
func TestWaitIsRecomputed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		w.set("a", func(n *node) { n.leads, n.hint = false, "" })
		horizon := w.now() + 10*time.Second
		w.acquire(t.Context(), c, "k", WithWait(10*time.Second))
		time.Sleep(3500 * time.Millisecond)
		w.set("b", func(n *node) { n.leads = true })
		r := w.expect(wire.OpAcquire)
		left := horizon - r.at
		if r.Wait > 7 || time.Duration(r.Wait)*time.Second < left || time.Duration(r.Wait-1)*time.Second >= left {
			t.Errorf("wait on the wire %d with %s left", r.Wait, left)
		}
		r.grant(1)
		w.acquire(t.Context(), c, "k2", WithWait(time.Millisecond))
		if r := w.expect(wire.OpAcquire); r.Wait != 1 {
			t.Errorf("1 ms became %d s on the wire, want 1", r.Wait)
		}
	})
}

func TestNothingIsSentAfterTheHorizon(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a", func(n *node) { n.deaf = true })
		c := w.open(WithSessions(1))
		ctx, cancel := context.WithCancel(t.Context())
		stuck := w.acquire(ctx, c, "stuck", WithWait(3*time.Second)) // in a Write that nobody reads
		synctest.Wait()
		began := w.now()
		late := w.acquire(t.Context(), c, "late", WithWait(2*time.Second))
		o := <-late
		wantKinds(t, o.err, ErrUnavailable)
		if took := o.at - began; took != 2*time.Second {
			t.Errorf("gave up after %s, want 2s", took)
		}
		w.set("a", func(n *node) { n.deaf = false })
		close(w.peer(0).woken)
		w.expect(wire.OpAcquire).answer(wire.Reply{Op: wire.OpTimeout})
		wantKinds(t, (<-stuck).err, ErrTimeout)
		w.quiet(time.Minute)
		cancel()
	})
}

// Also when the machine slept over the horizon and no timer has noticed yet.
func TestNothingIsSentAfterASuspension(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a", func(n *node) { n.deaf = true })
		c := w.open()
		stuck := w.acquire(t.Context(), c, "stuck", WithWait(100*time.Second))
		synctest.Wait()
		late := w.acquire(t.Context(), c, "late", WithWait(2*time.Second))
		synctest.Wait()
		w.skew.Add(int64(10 * time.Second))
		w.set("a", func(n *node) { n.deaf = false })
		close(w.peer(0).woken)
		w.expect(wire.OpAcquire).answer(wire.Reply{Op: wire.OpTimeout})
		wantKinds(t, (<-stuck).err, ErrTimeout)
		wantKinds(t, (<-late).err, ErrUnavailable)
		w.quiet(time.Minute)
	})
}

// Total deadline, possible send, no answer: exactly that session is closed.
func TestTotalDeadlineClosesOneSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open(WithSessions(2))
		synctest.Wait()
		one := w.acquire(t.Context(), c, "one", WithWait(2*time.Second), WithLease(20*time.Second))
		two := w.acquire(t.Context(), c, "two", WithWait(100*time.Second))
		r1, r2 := w.expect(wire.OpAcquire), w.expect(wire.OpAcquire)
		if r1.key != "one" {
			r1, r2 = r2, r1
		}
		if r1.p == r2.p {
			t.Fatal("both on one session")
		}
		began := w.now()
		o := <-one
		wantKinds(t, o.err, ErrIndeterminate)
		if took := o.at - began; took != 7*time.Second {
			t.Errorf("gave up after %s, want the wait + 5s", took)
		}
		if until := time.Until(o.err.(*Error).TakenUntil); until != 21*time.Second {
			t.Errorf("TakenUntil is %s from now, want the lease + 1s", until)
		}
		w.expect(wire.OpQuery).answer(wire.Reply{Op: wire.OpState})
		r2.grant(5)
		if o := <-two; o.err != nil {
			t.Errorf("the other session's acquire: %v", o.err)
		}
		if _, err := r1.p.conn.Write([]byte("x")); err == nil {
			t.Error("the session of the unanswered acquire is still open")
		}
		if w.seen(wire.OpAcquire) != 2 {
			t.Error("an acquire was sent twice")
		}
	})
}

// A grant that was correlated in time and is found late at the gate is given
// back by its exact token; the session stays.
func TestLateGrantIsGivenBack(t *testing.T) {
	for name, late := range map[string]time.Duration{"after the total deadline": 40 * time.Second, "after the lease": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c := w.open()
				done := w.acquire(t.Context(), c, "k", WithWait(30*time.Second), WithLease(10*time.Second))
				r := w.expect(wire.OpAcquire)
				w.skew.Add(int64(late)) // the machine was suspended
				r.grant(9)
				wantKinds(t, (<-done).err, ErrIndeterminate)
				rel := w.expect(wire.OpRelease)
				if rel.Token != 9 || rel.key != "k" || rel.p != r.p {
					t.Errorf("given back token %d of %q, same session: %v", rel.Token, rel.key, rel.p == r.p)
				}
				rel.answer(wire.Reply{Op: wire.OpReleased})
				w.quiet(time.Minute)
			})
		})
	}
}

// A server cannot make the client believe longer than is possible.
func TestWaitedIsBounded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		done := w.acquire(t.Context(), c, "k", WithLease(10*time.Second))
		r := w.expect(wire.OpAcquire)
		time.Sleep(time.Second)
		r.answer(wire.Reply{Op: wire.OpAcquired, Token: 1, WaitedMS: 3_600_000})
		o := <-done
		if left := time.Until(o.l.Expires()); left > 10*time.Second {
			t.Errorf("believes for another %s", left)
		}
	})
}
