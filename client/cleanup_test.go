package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// lostAcquire lets an acquire's session close without an answer.
func (w *world) lostAcquire(c *Client, key string) received {
	w.t.Helper()
	done := w.acquire(w.t.Context(), c, key)
	r := w.expect(wire.OpAcquire)
	_ = r.p.conn.Close()
	wantKinds(w.t, (<-done).err, ErrIndeterminate)
	return r
}

// After an acquire of unknown fate the client finds a grant of its own by its
// holder and gives back exactly that token.
func TestReclaim(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		a := w.lostAcquire(c, "k")
		q := w.expect(wire.OpQuery)
		if q.key != "k" || q.at-a.at > 100*time.Millisecond {
			t.Errorf("asked for %q after %s", q.key, q.at-a.at)
		}
		q.answer(wire.Reply{Op: wire.OpState, Token: 77, Holder: a.Owner})
		r := w.expect(wire.OpRelease)
		if r.Token != 77 || r.key != "k" {
			t.Errorf("released token %d of %q", r.Token, r.key)
		}
		r.answer(wire.Reply{Op: wire.OpReleased})
		w.quiet(time.Minute)
	})
}

// An entry may still be on its way: a free key is looked at again.
func TestReclaimLooksAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		a := w.lostAcquire(c, "k")
		for range 3 {
			w.expect(wire.OpQuery).answer(wire.Reply{Op: wire.OpState})
		}
		w.expect(wire.OpQuery).answer(wire.Reply{Op: wire.OpState, Token: 78, Holder: a.Owner})
		if r := w.expect(wire.OpRelease); r.Token != 78 {
			t.Errorf("released token %d", r.Token)
		}
	})
}

// Somebody else's grant is never touched, and the looking ends.
func TestReclaimLeavesOthersAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		a := w.lostAcquire(c, "k")
		w.serve(func(r received) {
			if r.Op != wire.OpQuery {
				t.Errorf("server got %q", r.Op)
			}
			r.answer(wire.Reply{Op: wire.OpState, Token: 79, Holder: a.Owner + 1})
		})
		time.Sleep(time.Minute)
		if n := w.seen(wire.OpQuery); n != len(reclaimDelays) {
			t.Errorf("%d looks, want %d", n, len(reclaimDelays))
		}
	})
}

// Under a server that answers nothing the looking does not breed more looking.
func TestReclaimUnderSilence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		a := w.acquire(t.Context(), c, "k", WithWait(0))
		w.expect(wire.OpAcquire)
		w.set("a", func(n *node) { n.mute = true })
		w.serve(func(received) {})
		wantKinds(t, (<-a).err, ErrIndeterminate)
		time.Sleep(5 * time.Minute)
		if n := w.seen(wire.OpQuery); n > 5*len(reclaimDelays) {
			t.Errorf("%d looks", n)
		}
		if len(c.reclaims) > 0 {
			t.Error("still looking")
		}
		w.mu.Lock()
		sessions := len(w.peers)
		w.mu.Unlock()
		time.Sleep(5 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.peers) > sessions {
			t.Errorf("%d new sessions with nothing to do", len(w.peers)-sessions)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open(WithSessions(3))
		synctest.Wait()
		l := w.hold(c, "held", 1, WithLease(9*time.Second))
		w.expect(wire.OpKeep) // a renewal under way
		w.lostAcquire(c, "unknown")
		w.expect(wire.OpQuery) // and a clean-up
		sent := w.acquire(t.Context(), c, "sent")
		w.expect(wire.OpAcquire)
		began := w.now()
		c.Close()
		c.Close()
		wantKinds(t, (<-sent).err, ErrIndeterminate)
		if took := w.now() - began; took > 0 {
			t.Errorf("close took %s", took)
		}
		select {
		case <-l.Lost():
		default:
			t.Error("the held lock is not lost")
		}
		if l.Err() != ErrClosed {
			t.Error(l.Err())
		}
		wantKinds(t, l.Release(t.Context()), ErrNotHeld, ErrClosed)
		wantKinds(t, second(c.Acquire(t.Context(), "k")), ErrClosed)
		wantKinds(t, second(c.Query(t.Context(), "k")), ErrClosed)
		wantKinds(t, c.Ping(t.Context()), ErrClosed)
		wantKinds(t, c.ReleaseToken(t.Context(), "k", 1), ErrClosed)
	})
}

// A grant that comes while the client closes is not delivered to nobody.
func TestCloseWhileWaitingForALeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		w.set("a", func(n *node) { n.leads = false })
		done := w.acquire(t.Context(), c, "k")
		time.Sleep(time.Second)
		c.Close()
		wantKinds(t, (<-done).err, ErrClosed)
	})
}
