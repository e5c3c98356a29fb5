package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// Moved means definitely not executed: the same owner goes to the leader, with
// what is left of the same wait.
func TestRedirect(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		first := w.acquire(t.Context(), c, "k", WithWait(20*time.Second))
		queued := w.expect(wire.OpAcquire)
		time.Sleep(5 * time.Second)
		// The leader steps down: what only waited there was never executed.
		w.set("a", func(n *node) { n.leads, n.hint = false, "b" })
		w.set("b", func(n *node) { n.leads = true })
		queued.answer(wire.Reply{Op: wire.OpMoved, Text: []byte("b")})
		r := w.expect(wire.OpAcquire)
		if r.Owner != queued.Owner || r.key != "k" || r.Wait != 15 || r.p.n.addr != "b" {
			t.Errorf("moved to %s: %+v, first %+v", r.p.n.addr, r.Request, queued.Request)
		}
		r.grant(3)
		o := <-first
		if o.err != nil {
			t.Fatal(o.err)
		}
		if left := o.l.Expires().Sub(time.Now()); left != DefaultLease-500*time.Millisecond {
			t.Errorf("believes for %s: the lease counts from the second sending", left)
		}
	})
}

// An idle client learns of a new leader by the answer to its next request.
func TestRedirectOfNextRequest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		w.set("a", func(n *node) { n.leads, n.hint = false, "c" })
		w.set("c", func(n *node) { n.leads = true })
		w.acquire(t.Context(), c, "k")
		r := w.expect(wire.OpAcquire)
		if w.moved[0].Owner != r.Owner || r.p.n.addr != "c" {
			t.Errorf("redirected %+v, received %+v at %s", w.moved[0].Request, r.Request, r.p.n.addr)
		}
		if took := r.at - w.moved[0].at; took > 50*time.Millisecond {
			t.Errorf("the redirect took %s", took)
		}
		r.grant(1)
	})
}

// With one endpoint known, the leader is found through followers' hints.
func TestHintsAreFollowed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a", func(n *node) { n.leads, n.hint = false, "b" })
		w.set("b", func(n *node) { n.hint = "c" })
		w.set("c", func(n *node) { n.leads = true })
		if _, err := w.tryOpen([]string{"a"}); err != nil {
			t.Fatal(err)
		}
		if w.peer(0).n.addr != "c" {
			t.Errorf("session with %s", w.peer(0).n.addr)
		}
	})
}

// Neither a loop, nor a node that names itself, nor one that knows nobody, nor
// one that names a dead node keeps the client from finding a leader that comes
// later, or makes it spin meanwhile.
func TestUselessHints(t *testing.T) {
	for name, hints := range map[string][3]string{
		"loop": {"b", "c", "a"}, "itself": {"a", "b", "c"}, "unknown": {"", "", ""}, "dead": {"x", "x", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				for i, addr := range []string{"a", "b", "c"} {
					w.set(addr, func(n *node) { n.leads, n.hint = false, hints[i] })
				}
				began := w.now()
				_, err := w.tryOpen([]string{"a", "b", "c"})
				wantKinds(t, err, ErrUnavailable)
				if took := w.now() - began; took != 5*time.Second {
					t.Errorf("gave up after %s, want 5s", took)
				}
				if w.dialled("a") > 50 {
					t.Errorf("dialled a %d times in 5s", w.dialled("a"))
				}
				time.AfterFunc(2*time.Second, func() { w.set("b", func(n *node) { n.leads = true }) })
				began = w.now()
				if _, err := w.tryOpen([]string{"a", "b", "c"}); err != nil {
					t.Error(err)
				}
				if took := w.now() - began; took > 2500*time.Millisecond {
					t.Errorf("found the leader after %s, it was there after 2s", took)
				}
			})
		})
	}
}

// A chain of hints is followed only so far.
func TestHopsAreBounded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := "abcdefghijkl"
		for i := range len(names) - 1 {
			w.nodes[names[i:i+1]] = &node{addr: names[i : i+1], hint: names[i+1 : i+2]}
		}
		_, err := w.tryOpen([]string{"a"})
		wantKinds(t, err, ErrUnavailable)
		if w.dialled("f") == 0 || w.dialled("g") > 0 {
			t.Errorf("dials %v, want up to f: five hops", w.dials)
		}
	})
}

func TestNoLeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		w.set("a", func(n *node) { n.leads, n.hint = false, "" })
		began := w.now()
		o := <-w.acquire(t.Context(), c, "k", WithWait(8*time.Second))
		wantKinds(t, o.err, ErrUnavailable)
		if took := o.at - began; took != 8*time.Second {
			t.Errorf("gave up after %s, want the wait", took)
		}
		w.quiet(time.Minute) // definitely not granted: nothing to look for
	})
}

// A server that takes sessions, and calls, only to send them away again must
// not be hammered.
func TestFlappingServer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		w.serve(func(r received) { r.answer(wire.Reply{Op: wire.OpMoved}) })
		var calls [8]<-chan outcome
		for i := range calls {
			calls[i] = w.acquire(t.Context(), c, "k", WithWait(10*time.Second))
		}
		for _, done := range calls {
			wantKinds(t, (<-done).err, ErrUnavailable)
		}
		if w.dialled("a") > 150 {
			t.Errorf("dialled %d times in 10s", w.dialled("a"))
		}
	})
}

func TestDeadEndpointsCostLittle(t *testing.T) {
	for name, dead := range map[string]func(n *node){
		"down":      func(n *node) { n.down = true },
		"blackhole": func(n *node) { n.blackhole = true },
		"silent":    func(n *node) { n.silent = true },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.set("a", func(n *node) { n.leads = false; dead(n) })
				w.set("b", dead)
				w.set("c", func(n *node) { n.leads = true })
				began := w.now()
				w.open()
				if took := w.now() - began; took > 0 {
					t.Errorf("open took %s", took)
				}
			})
		})
	}
}

// Black-holed servers: every call ends by its own deadline, as what it is.
func TestBlackHole(t *testing.T) {
	holes := map[string]func(n *node){
		"dials hang":         func(n *node) { n.blackhole = true },
		"greetings hang":     func(n *node) { n.silent = true },
		"connection refused": func(n *node) { n.down = true },
	}
	for name, hole := range holes {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				c := w.open()
				l := w.hold(c, "held", 1, WithLease(60*time.Second), WithoutRenewal())
				for _, addr := range []string{"a", "b", "c"} {
					w.set(addr, hole)
				}
				_ = w.peer(0).conn.Close()
				synctest.Wait()
				timed := func(what string, want time.Duration, f func() error) {
					began := w.now()
					wantKinds(t, f(), ErrUnavailable)
					if took := w.now() - began; took < want-500*time.Millisecond || took > want+500*time.Millisecond {
						t.Errorf("%s took %s, want %s", what, took, want)
					}
				}
				timed("acquire", 3*time.Second, func() error { return second(c.Acquire(t.Context(), "k", WithWait(3*time.Second))) })
				timed("try", 5*time.Second, func() error { return second(c.TryAcquire(t.Context(), "k")) })
				timed("query", 5*time.Second, func() error { return second(c.Query(t.Context(), "k")) })
				timed("ping", 5*time.Second, func() error { return c.Ping(t.Context()) })
				timed("keep", 5*time.Second, func() error { return second(c.KeepToken(t.Context(), "held", 1, time.Minute)) })
				timed("release", 5*time.Second, func() error { return l.Release(t.Context()) })
				timed("open", 5*time.Second, func() error { return second(w.tryOpen([]string{"a", "b"})) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := c.Acquire(ctx, "k")
				wantKinds(t, err, context.DeadlineExceeded)
				began := w.now()
				c.Close()
				if took := w.now() - began; took > 0 {
					t.Errorf("close took %s", took)
				}
			})
		})
	}
}

func TestEndpointsAreChecked(t *testing.T) {
	for _, endpoints := range [][]string{nil, {""}, {"a", ""}} {
		if _, err := Open(t.Context(), endpoints); err == nil {
			t.Errorf("Open(%q) succeeded", endpoints)
		}
	}
	for _, o := range []Option{WithSessions(0), WithSessions(17), WithDialTimeout(0), WithLabel("a\nb"), WithLabel(string(make([]byte, 256)))} {
		if _, err := Open(t.Context(), []string{"a"}, o); err == nil {
			t.Error("a bad option was accepted")
		}
	}
}
