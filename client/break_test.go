package client

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// "Possible send" is what the connection's Write reported: of three acquires in
// one Write that is cut inside the second, the third was definitely not sent.
func TestCutInsideAWrite(t *testing.T) {
	for _, tc := range []struct {
		name         string
		cut          int // bytes taken of a Write of three frames
		unsent, lost int
	}{
		{"nothing taken", 0, 3, 0},
		{"one byte", 1, 2, 1},
		{"one whole frame", 13, 2, 1},
		{"one byte more", 14, 1, 2},
		{"all but the last byte", 38, 0, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newNetwork(t, "a:1")
				cl, p := w.open(WithSessions(1))
				// Hold the writer up so that the three go in one Write.
				blocked := acquire(t.Context(), cl, "x", WithWait(time.Minute))
				synctest.Wait()
				var got []<-chan acquiring
				for range 3 {
					got = append(got, acquire(t.Context(), cl, "y", WithWait(time.Minute)))
				}
				synctest.Wait()
				p.grant(p.expect(wire.OpAcquire), 1)
				<-blocked
				if _, err := io.ReadFull(p.conn, make([]byte, tc.cut)); err != nil {
					t.Fatal(err)
				}
				_ = p.conn.Close()
				p = w.leader("a:1")
				moved := map[uint64]bool{}
				go p.serve(func(p *peer, req wire.Request) {
					switch req.Op {
					case wire.OpPing:
						p.pong(req)
					case wire.OpAcquire:
						moved[req.Owner] = true
						p.grant(req, uint64(10+len(moved)))
					case wire.OpQuery:
						p.reply(wire.Reply{Op: wire.OpState, Owner: req.Owner})
					}
				})
				lost := 0
				for _, ch := range got {
					if r := <-ch; r.err != nil {
						wantErr(t, r.err, ErrIndeterminate)
						lost++
					}
				}
				cl.Close()
				synctest.Wait()
				if lost != tc.lost || len(moved) != tc.unsent {
					t.Errorf("%d indeterminate, %d moved; want %d and %d", lost, len(moved), tc.lost, tc.unsent)
				}
			})
		})
	}
}

// Replies that came before a session broke still count, also when it is a Write
// that found it broken.
func TestLastRepliesCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		cl, p := w.open()
		got := acquire(t.Context(), cl, "k")
		a := p.expect(wire.OpAcquire)
		go func() {
			p.grant(a, 8)
			_ = p.conn.Close()
		}()
		if r := <-got; r.err != nil {
			t.Fatal(r.err)
		}
	})
}

// failing is a connection whose writes can be made to fail.
type failing struct {
	net.Conn
	broken atomic.Bool
}

func (f *failing) Write(b []byte) (int, error) {
	if f.broken.Load() {
		return 0, syscall.EPIPE
	}
	return f.Conn.Write(b)
}

func TestRepliesBehindAFailedWriteCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1")
		var conns []*failing
		cl, p := w.open(WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := w.dial(ctx, network, addr)
			conns = append(conns, &failing{Conn: c})
			return conns[len(conns)-1], err
		}))
		first := acquire(t.Context(), cl, "k")
		a := p.expect(wire.OpAcquire)
		conns[0].broken.Store(true)
		second := acquire(t.Context(), cl, "l")
		q := w.leader("a:1") // not one byte was taken, so it moves at once
		q.grant(q.expect(wire.OpAcquire), 2)
		if r := <-second; r.err != nil {
			t.Fatal(r.err)
		}
		time.Sleep(drainTime / 2)
		p.grant(a, 1)
		if r := <-first; r.err != nil {
			t.Fatal(r.err)
		}
	})
}

// A server that breaks the protocol is not believed any further.
func TestProtocolViolations(t *testing.T) {
	for name, answer := range map[string]func(p *peer, a wire.Request){
		"garbage":     func(p *peer, _ wire.Request) { _, _ = p.conn.Write([]byte{0xff}) },
		"wrong reply": func(p *peer, a wire.Request) { p.reply(wire.Reply{Op: wire.OpKept, Owner: a.Owner}) },
		"whole session refused": func(p *peer, _ wire.Request) {
			p.reply(wire.Reply{Op: wire.OpRefused, Code: wire.CodeBadFrame, Text: []byte("what?")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newNetwork(t, "a:1")
				cl, p := w.open()
				got := acquire(t.Context(), cl, "k")
				answer(p, p.expect(wire.OpAcquire))
				wantErr(t, (<-got).err, ErrIndeterminate)
				p.gone()
			})
		})
	}
}

// Nothing hangs when every server is there and silent.
func TestBlackHoles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newNetwork(t, "a:1", "b:1")
		w.set("b:1", func(n *node) { n.hole = true })
		cl, p := w.open()
		lock := p.held(cl, "mine", 7)
		w.set("a:1", func(n *node) { n.hole = true }) // and p reads no more
		begin := time.Now()
		within := func(what string, d time.Duration, f func(ctx context.Context) error) <-chan error {
			return background(func() error {
				err := f(t.Context())
				if took := time.Since(begin); took > d {
					t.Errorf("%s took %v, want at most %v", what, took, d)
				}
				if err == nil {
					t.Errorf("%s succeeded", what)
				}
				return err
			})
		}
		all := []<-chan error{
			within("acquire", 15*time.Second, func(ctx context.Context) error {
				_, err := cl.Acquire(ctx, "a", WithWait(10*time.Second))
				return err
			}),
			within("try", 5*time.Second, func(ctx context.Context) error { _, err := cl.TryAcquire(ctx, "b"); return err }),
			within("query", 5*time.Second, func(ctx context.Context) error { _, err := cl.Query(ctx, "c"); return err }),
			within("ping", 5*time.Second, cl.Ping),
			within("keep", 15*time.Second, lock.Keep),
			within("keep token", 5*time.Second, func(ctx context.Context) error {
				_, err := cl.KeepToken(ctx, "d", 1, time.Second)
				return err
			}),
			within("release token", 5*time.Second, func(ctx context.Context) error { return cl.ReleaseToken(ctx, "e", 1) }),
			within("cancelled acquire", 1500*time.Millisecond, func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := cl.Acquire(ctx, "f")
				return err
			}),
		}
		for _, ch := range all {
			<-ch
		}
		<-lock.Lost()
		closing := time.Now()
		cl.Close()
		if d := time.Since(closing); d > 2*closeTime {
			t.Errorf("Close took %v", d)
		}
	})
}
