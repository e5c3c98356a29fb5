package client

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

func TestRedirectKeepsOwnerAndDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		w.add("b:1") // not an endpoint
		got := acquire(t.Context(), cl, "k", WithWait(20*time.Second))
		a := p.expect(wire.OpAcquire)
		if a.Wait != 20 {
			t.Fatalf("sent %+v", a)
		}
		p.quiet(7500 * time.Millisecond)
		p.moved(a.Owner, "b:1")
		q := w.leader("b:1")
		again := q.expect(wire.OpAcquire)
		if again.Owner != a.Owner || again.Wait != 13 || string(again.Text) != "k" {
			t.Fatalf("sent %+v after %+v", again, a)
		}
		q.grant(again, 3)
		if r := <-got; r.err != nil || r.lock.Owner() != a.Owner {
			t.Fatal(r.err)
		}
		p.gone() // a session with a follower ends when nothing is owed on it
	})
}

// Nodes that point to each other, and one that says it leads and moves every
// acquire: bounded work and a definite answer.
func TestRedirectLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		w.add("b:1")
		sends := 0
		play := func(p *peer, other string) {
			p.serve(func(p *peer, req wire.Request) {
				if req.Op == wire.OpPing {
					p.pong(req)
					return
				}
				sends++
				p.moved(req.Owner, other)
			})
		}
		go func() {
			for {
				select {
				case q := <-w.nodes["a:1"].accept:
					go play(q, "b:1")
				case q := <-w.nodes["b:1"].accept:
					go play(q, "a:1")
				case <-t.Context().Done():
					return
				}
			}
		}()
		got := acquire(t.Context(), cl, "k", WithWait(MaxWait))
		go play(p, "b:1")
		r := <-got
		wantErr(t, r.err, ErrUnavailable)
		if errors.Is(r.err, ErrIndeterminate) || sends != maxHops+1 {
			t.Errorf("%d sends, %v", sends, r.err)
		}
		cl.Close()
		synctest.Wait()
	})
}

func TestFollowersThatPointInCirclesAreAskedInModeration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1", "b:1")
		for addr, other := range map[string]string{"a:1": "b:1", "b:1": "a:1"} {
			go func() {
				for {
					select {
					case p := <-w.nodes[addr].accept:
						ping := p.expect(wire.OpPing)
						p.moved(ping.Owner, other)
					case <-t.Context().Done():
						return
					}
				}
			}()
		}
		begin := time.Now()
		_, err := Open(t.Context(), []string{"a:1", "b:1"}, WithDialer(w.dial), WithLabel(""), withClock(testClock()))
		wantErr(t, err, ErrUnavailable)
		if d := time.Since(begin); d != transport {
			t.Errorf("took %v", d)
		}
		if n := w.dialled("a:1"); n < 5 || n > 300 {
			t.Errorf("%d connections in 5 s", n)
		}
	})
}

// The first endpoints being dead or silent costs nothing: all are asked at once.
func TestDeadEndpointsDoNotDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1", "hole:1", "mute:1")
		w.set("hole:1", func(n *node) { n.hole = true })
		begin := time.Now()
		cl, p := w.open()
		if d := time.Since(begin); d != 0 {
			t.Errorf("took %v", d)
		}
		if err := pinged(cl, p); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if w.dialled("mute:1") != 1 || w.dialled("hole:1") != 1 {
			t.Error("not all endpoints were tried")
		}
	})
}

func TestNoLeader(t *testing.T) {
	for name, tc := range map[string]struct {
		wait, after time.Duration
	}{
		"immediate: the transport deadline":   {0, 5 * time.Second},
		"waiting: nothing sent after horizon": {2500 * time.Millisecond, 2500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newNetwork(t, "a:1")
				cl, p := w.open()
				w.remove("a:1")
				_ = p.conn.Close()
				synctest.Wait()
				begin := time.Now()
				_, err := cl.Acquire(t.Context(), "k", WithWait(tc.wait))
				wantErr(t, err, ErrUnavailable)
				if errors.Is(err, ErrIndeterminate) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("not exact: %v", err)
				}
				if d := time.Since(begin); d != tc.after {
					t.Errorf("took %v", d)
				}
				if !bytes.Contains([]byte(err.Error()), []byte("a:1: ")) {
					t.Errorf("%q does not say what was tried", err)
				}
			})
		})
	}
}

// "A connection that came late does not start a fresh 255-second wait."
func TestWaitIsRecomputedAtTheLastMoment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open(WithDialTimeout(time.Minute))
		_ = p.conn.Close()
		synctest.Wait()
		w.set("a:1", func(n *node) { n.delay = 31300 * time.Millisecond })
		got := acquire(t.Context(), cl, "k", WithWait(MaxWait))
		p = w.leader("a:1")
		a := p.expect(wire.OpAcquire)
		if a.Wait != 224 { // 255 - 31.3, rounded up
			t.Errorf("wait %d", a.Wait)
		}
		p.grant(a, 1)
		if r := <-got; r.err != nil {
			t.Fatal(r.err)
		}
	})
}

// An acquire that meets a writer busy until after its horizon is not sent.
func TestNothingIsSentAfterTheHorizon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		first := acquire(t.Context(), cl, "first", WithWait(100*time.Second))
		synctest.Wait() // its Write is stuck, for nobody reads
		begin := time.Now()
		second := acquire(t.Context(), cl, "second", WithWait(500*time.Millisecond))
		r := <-second
		wantErr(t, r.err, ErrTimeout)
		if d := time.Since(begin); d != 500*time.Millisecond {
			t.Errorf("took %v", d)
		}
		p.grant(p.expect(wire.OpAcquire), 1)
		if r := <-first; r.err != nil {
			t.Fatal(r.err)
		}
		p.quiet(4 * time.Second)
	})
}

// wait=0 stays an immediate attempt on the wire, whichever connection it takes
// and however long finding it took.
func TestImmediateAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		_ = p.conn.Close()
		synctest.Wait()
		w.set("a:1", func(n *node) { n.delay = 900 * time.Millisecond })
		got := acquire(t.Context(), cl, "k", WithWait(0))
		p = w.leader("a:1")
		a := p.expect(wire.OpAcquire)
		if a.Wait != 0 {
			t.Errorf("wait %d", a.Wait)
		}
		p.moved(a.Owner, "")
		w.set("a:1", func(n *node) { n.delay = 0 })
		p = w.leader("a:1")
		b := p.expect(wire.OpAcquire)
		if b.Wait != 0 || b.Owner != a.Owner {
			t.Errorf("sent %+v after %+v", b, a)
		}
		p.reply(wire.Reply{Op: wire.OpTimeout, Owner: b.Owner})
		wantErr(t, (<-got).err, ErrTimeout)
	})
}

func TestImmediateAttemptWithoutAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		begin := time.Now()
		got := background(func() error { _, err := cl.TryAcquire(t.Context(), "k"); return err })
		p.expect(wire.OpAcquire)
		p.gone()
		wantErr(t, <-got, ErrIndeterminate)
		if d := time.Since(begin); d != 5*time.Second {
			t.Errorf("took %v", d)
		}
	})
}
