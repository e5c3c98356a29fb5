package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

func TestAcquireAndRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open(WithLabel("host/app/1"))
		done := w.acquire(t.Context(), c, "k", WithWait(30*time.Second), WithLease(10*time.Second))
		r := w.expect(wire.OpAcquire)
		if r.key != "k" || r.Wait != 30 || r.Lease != 10 || r.Owner == 0 {
			t.Errorf("server got %+v for %q", r.Request, r.key)
		}
		if r.p.label != "host/app/1" {
			t.Errorf("label in the hello = %q", r.p.label)
		}
		time.Sleep(2 * time.Second) // in the queue
		r.answer(wire.Reply{Op: wire.OpAcquired, Token: 42, WaitedMS: 2000})
		o := <-done
		if o.err != nil {
			t.Fatal(o.err)
		}
		l := o.l
		if l.Key() != "k" || l.Token() != 42 || l.Owner() != r.Owner || l.Lease() != 10*time.Second || l.Err() != nil {
			t.Errorf("lock = %q %d %d %s %v", l.Key(), l.Token(), l.Owner(), l.Lease(), l.Err())
		}
		// The lease began at the grant, two seconds after the request was sent.
		if want := r.at + 2*time.Second + 10*time.Second - 500*time.Millisecond; w.now()+time.Until(l.Expires()) != want {
			t.Errorf("Expires = %s from now, want %s", time.Until(l.Expires()), want-w.now())
		}
		ctx := l.Context()
		released := run(func() error { return l.Release(t.Context()) })
		rel := w.expect(wire.OpRelease)
		if rel.Token != 42 || rel.key != "k" || rel.Owner == r.Owner {
			t.Errorf("server got %+v for %q", rel.Request, rel.key)
		}
		rel.answer(wire.Reply{Op: wire.OpReleased})
		if err := <-released; err != nil {
			t.Error(err)
		}
		if context.Cause(ctx) != ErrReleased || l.Err() != ErrReleased {
			t.Errorf("after release: cause %v, Err %v", context.Cause(ctx), l.Err())
		}
		select {
		case <-l.Lost():
			t.Error("a release closed Lost")
		default:
		}
		wantKinds(t, l.Release(t.Context()), ErrNotHeld, ErrReleased)
	})
}

// The bytes themselves, without this module's codec on the server's side.
func TestBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		first := true
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			if !first {
				return nil, io.ErrClosedPipe
			}
			first = false
			return client, nil
		}
		start := time.Now()
		opened := make(chan *Client)
		go func() {
			c, err := Open(t.Context(), []string{"x"}, WithSessions(1), WithLabel("me"), WithDialer(dial), withClock(func() time.Duration { return time.Since(start) }))
			if err != nil {
				t.Error(err)
			}
			opened <- c
		}()
		read := func(n int) []byte {
			b := make([]byte, n)
			if _, err := io.ReadFull(server, b); err != nil {
				t.Error(err)
			}
			return b
		}
		hello := read(1 + 1 + 8 + 2 + 1 + 1 + 8 + 1) // hello and ping
		if hello[0] != 'H' || hello[1] != 1 || string(hello[10:13]) != "me\n" || hello[13] != 'P' || hello[22] != '\n' {
			t.Errorf("greeting % x", hello)
		}
		reply := append([]byte("H\x01"), hello[2:10]...)
		reply = append(reply, "\nP"...)
		reply = append(append(reply, hello[14:22]...), '\n')
		for i := range reply { // one byte at a time
			_, _ = server.Write(reply[i : i+1])
		}
		c := <-opened
		defer c.Close()
		done := make(chan *Lock)
		go func() {
			l, err := c.Acquire(t.Context(), "key", WithWait(7*time.Second), WithLease(10*time.Second))
			if err != nil {
				t.Error(err)
			}
			done <- l
		}()
		a := read(1 + 1 + 1 + 8 + 3 + 1)
		if !bytes.Equal(a[:3], []byte{'A', 7, 10}) || string(a[11:]) != "key\n" {
			t.Errorf("acquire % x", a)
		}
		reply = append([]byte("A"), a[3:11]...)
		reply = append(binary.BigEndian.AppendUint64(reply, 0x0A0A0A0A0A0A0A0A), 0, 0, 0, 0, '\n')
		for i := range reply {
			_, _ = server.Write(reply[i : i+1])
		}
		if l := <-done; l.Token() != 0x0A0A0A0A0A0A0A0A {
			t.Errorf("token %x", l.Token())
		}
	})
}

func TestDefiniteAnswers(t *testing.T) {
	for _, tt := range []struct {
		reply wire.Reply
		kind  error
		text  string
	}{
		{wire.Reply{Op: wire.OpTimeout}, ErrTimeout, "timed out"},
		{wire.Reply{Op: wire.OpBusy}, ErrBusy, "capacity"},
		{wire.Reply{Op: wire.OpRefused, Code: wire.CodeForbidden, Text: []byte("not you")}, ErrRefused, "not you (forbidden)"},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			c := w.open()
			done := w.acquire(t.Context(), c, "k")
			w.expect(wire.OpAcquire).answer(tt.reply)
			o := <-done
			wantKinds(t, o.err, tt.kind)
			if o.err != nil && !strings.Contains(o.err.Error(), tt.text) {
				t.Errorf("error %q does not say %q", o.err, tt.text)
			}
			w.quiet(time.Minute) // nothing to clean up, nothing to try again
		})
	}
}

// An answer that does not belong to an acquire leaves its fate unknown.
func TestUnexpectedAnswer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		done := w.acquire(t.Context(), c, "k")
		w.expect(wire.OpAcquire).answer(wire.Reply{Op: wire.OpPong})
		wantKinds(t, (<-done).err, ErrIndeterminate)
		w.expect(wire.OpQuery) // and is looked into
	})
}

func TestBadArguments(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		for _, err := range []error{
			second(c.Acquire(t.Context(), "")),
			second(c.Acquire(t.Context(), "a\nb")),
			second(c.Acquire(t.Context(), strings.Repeat("x", 513))),
			second(c.Acquire(t.Context(), "k", WithWait(256*time.Second))),
			second(c.Acquire(t.Context(), "k", WithWait(-1))),
			second(c.Acquire(t.Context(), "k", WithLease(0))),
			second(c.Acquire(t.Context(), "k", WithLease(256*time.Second))),
			second(c.KeepToken(t.Context(), "k", 1, 0)),
			second(c.KeepToken(t.Context(), "", 1, time.Second)),
			second(c.Query(t.Context(), "")),
			c.ReleaseToken(t.Context(), "\xff", 1),
		} {
			wantKinds(t, err, ErrRefused)
		}
		w.quiet(time.Minute)
	})
}

func second[T any](_ T, err error) error { return err }

func TestPipeliningOutOfOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		const n = 100
		var done [n]<-chan outcome
		for i := range done {
			done[i] = w.acquire(t.Context(), c, string(rune('a'+i)))
		}
		var got []received
		for range n {
			got = append(got, w.expect(wire.OpAcquire))
		}
		for i := len(got) - 1; i >= 0; i-- {
			got[i].grant(uint64([]rune(got[i].key)[0]))
		}
		for i := range done {
			if o := <-done[i]; o.err != nil || o.l.Token() != uint64('a'+i) {
				t.Errorf("%d: %v", i, o.err)
			}
		}
		if got[0].p != got[n-1].p {
			t.Error("not all on one session")
		}
	})
}

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

func TestOwnersAreUnique(t *testing.T) {
	var mu sync.Mutex
	seen := map[uint64]bool{0: true}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10_000 {
				o := newOwner()
				mu.Lock()
				if seen[o] {
					t.Errorf("owner %d twice, or 0", o)
				}
				seen[o] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	owners.Store(^uint64(0)) // the next one would be 0
	if newOwner() == 0 {
		t.Error("owner 0")
	}
}
