package client

import (
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// A session that closes after a possible send: Indeterminate, and the acquire
// is never sent again, to nobody.
func TestPossibleSendIsNeverRepeated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open(WithSessions(2))
		synctest.Wait()
		began := w.now()
		done := w.acquire(t.Context(), c, "k")
		r := w.expect(wire.OpAcquire)
		_ = r.p.conn.Close()
		o := <-done
		wantKinds(t, o.err, ErrIndeterminate)
		if took := o.at - began; took > 0 {
			t.Errorf("took %s to notice", took)
		}
		// The other session still works, and is asked what became of it.
		q := w.expect(wire.OpQuery)
		if q.key != "k" || q.p == r.p {
			t.Errorf("query for %q", q.key)
		}
		q.answer(wire.Reply{Op: wire.OpState})
		w.serve(func(q received) { // further looks
			if q.Op != wire.OpQuery {
				t.Errorf("server got %q", q.Op)
			}
			q.answer(wire.Reply{Op: wire.OpState})
		})
		time.Sleep(time.Minute)
		if n := w.seen(wire.OpAcquire); n != 1 {
			t.Errorf("%d acquires were sent", n)
		}
	})
}

// faultyConn lets a test decide what becomes of a Write.
type faultyConn struct {
	net.Conn
	write func(b []byte) (int, error)
}

func (f *faultyConn) Write(b []byte) (int, error) { return f.write(b) }

// faulty has the first Write after the greeting of the first connection to
// address a go to write.
func (w *world) faulty(write func(conn net.Conn, b []byte) (int, error)) {
	var mu sync.Mutex
	greeted, failed := false, false
	w.wrap = func(addr string, conn net.Conn) net.Conn {
		if addr != "a" {
			return conn
		}
		return &faultyConn{conn, func(b []byte) (int, error) {
			mu.Lock()
			fails := greeted && !failed
			failed, greeted = failed || fails, true
			mu.Unlock()
			if fails {
				return write(conn, b)
			}
			return conn.Write(b)
		}}
	}
}

func ownerOf(frame []byte) uint64 {
	var r wire.Request
	_ = wire.NewRequestReader(&oneRead{frame}).Read(&r)
	return r.Owner
}

type oneRead struct{ b []byte }

func (o *oneRead) Read(p []byte) (int, error) { return copy(p, o.b), nil }

// What a Write reports decides: not one byte accepted is definitely unsent and
// goes to another session with the same owner; one byte is a possible send.
func TestWhatTheWriteReports(t *testing.T) {
	broken := errors.New("broken pipe")
	var tried uint64
	for name, tt := range map[string]struct {
		write func(conn net.Conn, b []byte) (int, error)
		sent  bool
	}{
		"nothing accepted": {func(_ net.Conn, b []byte) (int, error) { return 0, broken }, false},
		"one byte":         {func(conn net.Conn, b []byte) (int, error) { n, _ := conn.Write(b[:1]); return n, broken }, true},
		"all but the end":  {func(conn net.Conn, b []byte) (int, error) { n, _ := conn.Write(b[:len(b)-1]); return n, broken }, true},
		"nothing accepted, and the reader sees the end first": {func(conn net.Conn, b []byte) (int, error) {
			_ = conn.Close()
			synctest.Wait() // until the reader has closed the session
			return 0, broken
		}, false},
		"one byte, and the reader sees the end first": {func(conn net.Conn, b []byte) (int, error) {
			_ = conn.Close()
			synctest.Wait()
			return 1, broken
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.faulty(func(conn net.Conn, b []byte) (int, error) {
					tried = ownerOf(b)
					return tt.write(conn, b)
				})
				c := w.open()
				done := w.acquire(t.Context(), c, "k")
				if tt.sent {
					wantKinds(t, (<-done).err, ErrIndeterminate)
					w.expect(wire.OpQuery)
					return
				}
				r := w.expect(wire.OpAcquire)
				if r.Owner != tried || r.Wait != 30 {
					t.Errorf("moved with owner %d, tried %d; wait %d", r.Owner, tried, r.Wait)
				}
				r.grant(1)
				if o := <-done; o.err != nil {
					t.Error(o.err)
				}
			})
		})
	}
}

// One Write carries many calls: it is decided for each by where its frame lies.
func TestPartialWriteOfMany(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const n = 10
		frame := len("Awl") + 8 + len("k\n")
		blocked, goOn := make(chan bool), make(chan bool)
		writes := 0
		wrapped := false
		w.wrap = func(addr string, conn net.Conn) net.Conn {
			if addr != "a" || wrapped {
				return conn
			}
			wrapped = true
			return &faultyConn{conn, func(b []byte) (int, error) {
				switch writes++; writes {
				case 2: // the first acquire holds the writer up, so that the others gather
					close(blocked)
					<-goOn
				case 3: // three and a bit are accepted
					n, _ := conn.Write(b[:3*frame+1])
					return n, errors.New("broken pipe")
				}
				return conn.Write(b)
			}}
		}
		c := w.open()
		first := w.acquire(t.Context(), c, "k")
		<-blocked
		var done [n]<-chan outcome
		for i := range done {
			done[i] = w.acquire(t.Context(), c, "k")
		}
		synctest.Wait()
		broke := w.peer(0)
		w.serve(func(r received) {
			if r.Op == wire.OpAcquire && r.p != broke {
				r.answer(wire.Reply{Op: wire.OpTimeout})
			} else if r.Op == wire.OpQuery {
				r.answer(wire.Reply{Op: wire.OpState})
			}
		})
		close(goOn)
		wantKinds(t, (<-first).err, ErrIndeterminate)
		unknown := 0
		for i := range done {
			err := (<-done[i]).err
			if errors.Is(err, ErrIndeterminate) {
				unknown++
				continue
			}
			wantKinds(t, err, ErrTimeout)
		}
		if unknown != 4 {
			t.Errorf("%d of %d are indeterminate, want 4", unknown, n)
		}
	})
}

// Calls that wait for the writer move when their session fails.
func TestUnsentCallsMove(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.set("a", func(n *node) { n.deaf = true })
		c := w.open()
		w.set("a", func(n *node) { n.deaf = false })
		var done [20]<-chan outcome
		for i := range done {
			done[i] = w.acquire(t.Context(), c, "k")
		}
		synctest.Wait()
		_ = w.peer(0).conn.Close()
		close(w.peer(0).woken)
		for range done {
			w.expect(wire.OpAcquire).answer(wire.Reply{Op: wire.OpTimeout})
		}
		for i := range done {
			wantKinds(t, (<-done[i]).err, ErrTimeout)
		}
	})
}

// A half-open connection reports nothing; the liveness ping finds it out. Long
// waits on a server that answers pings are left alone.
func TestSilentServer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		done := w.acquire(t.Context(), c, "k", WithWait(200*time.Second))
		r := w.expect(wire.OpAcquire)
		time.Sleep(100 * time.Second)
		if len(done) > 0 {
			t.Fatalf("a queued acquire ended early: %v", (<-done).err)
		}
		w.set("a", func(n *node) { n.mute = true })
		began := w.now()
		o := <-done
		wantKinds(t, o.err, ErrIndeterminate)
		if took := o.at - began; took < 2*time.Second || took > 8*time.Second {
			t.Errorf("noticed after %s", took)
		}
		if q := w.expect(wire.OpQuery); q.p == r.p {
			t.Error("asked on the dead session")
		}
	})
}

// A process that was frozen finds the answers in its sockets: it must not take
// its own absence for the server's.
func TestFrozenProcessKeepsItsSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.open()
		done := w.acquire(t.Context(), c, "k", WithWait(100*time.Second))
		r := w.expect(wire.OpAcquire)
		w.set("a", func(n *node) { n.mute = true })
		time.Sleep(3500 * time.Millisecond) // the liveness ping is out
		w.skew.Add(int64(10 * time.Second))
		time.Sleep(time.Second) // a check comes before the read
		r.p.write(wire.Reply{Op: wire.OpPong})
		w.set("a", func(n *node) { n.mute = false })
		time.Sleep(5 * time.Second)
		r.answer(wire.Reply{Op: wire.OpAcquired, Token: 1, WaitedMS: uint32((w.now() - r.at).Milliseconds())})
		if o := <-done; o.err != nil {
			t.Error(o.err)
		}
	})
}
