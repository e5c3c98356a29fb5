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
