package frontend

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
	"github.com/holdfast-lock/holdfast/wire"
)

// slow makes every entry take d from proposal to outcome.
func (l *memLog) slow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

func TestWrongTokensDoNotHoldUpAnExpiry(t *testing.T) {
	for name, req := range map[string]func(uint64) wire.Request{
		"keep":    func(owner uint64) wire.Request { return keep(owner, "k", 5, 9) },
		"release": func(owner uint64) wire.Request { return release(owner, "k", 5) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bench) {
				p, rude := b.dial(), b.dial()
				p.send(acquire(1, "k", 0, 2))
				p.next(wire.OpAcquired, 1)
				p.send(acquire(2, "k", 60, 9))
				b.log.slow(10 * time.Millisecond)
				start := time.Now()
				// Something of the key is on its way through the log at all times.
				for owner := uint64(1); time.Since(start) < 4*time.Second; owner++ {
					rude.send(req(owner))
					time.Sleep(3 * time.Millisecond)
				}
				b.log.slow(0)
				if r := p.next(wire.OpAcquired, 2); r.WaitedMS > 2500 {
					t.Errorf("granted after %d ms, the lease ended after 2000", r.WaitedMS)
				}
			})
		})
	}
}

func TestGuessedTokenFreesTheKeyForTheQueue(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p, rude := b.dial(), b.dial()
		b.log.set(true, nil)
		p.send(acquire(1, "k", 0, 100), acquire(2, "k", 200, 100))
		rude.send(release(9, "k", 1001)) // the token that the grant on its way will have
		b.log.step()
		synctest.Wait()
		b.log.set(false, nil)
		p.next(wire.OpAcquired, 1)
		p.next(wire.OpAcquired, 2)
		rude.next(wire.OpReleased, 9)
	})
}

func TestNoTokenOfAClientMovesTheQueue(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p, rude := b.dial(), b.dial()
		b.log.set(true, nil)
		p.send(acquire(1, "k", 9, 100), acquire(2, "k", 9, 100), acquire(3, "k", 9, 100))
		for owner, token := range []uint64{0, granting, granting, 0} {
			rude.send(release(uint64(owner), "k", token), keep(uint64(owner)+10, "k", token, 5))
		}
		b.log.set(false, nil)
		p.next(wire.OpAcquired, 1)
		p.silent()
		if n := b.log.ops(fsm.KindGrant); n != 1 {
			t.Errorf("%d grants proposed while the key was held, want 1", n)
		}
	})
}

func TestLeasesEndUnderOverload(t *testing.T) {
	inBubble(t, func(c *Config) { c.MaxBatchOps, c.MaxEntriesInflight = 4, 1 }, func(b *bench) {
		p, busy := b.dial(), b.dial()
		p.send(acquire(1, "k", 0, 2), acquire(2, "k", 60, 9))
		p.next(wire.OpAcquired, 1)
		b.log.slow(5 * time.Millisecond)
		ask := func(n int) (reqs []wire.Request) {
			for range n {
				reqs = append(reqs, keep(1, "other", 5, 5))
			}
			return reqs
		}
		busy.send(ask(64)...)
		for start := time.Now(); time.Since(start) < 5*time.Second; {
			<-busy.got
			busy.send(ask(1)...)
		}
		b.log.slow(0)
		if r := p.next(wire.OpAcquired, 2); r.WaitedMS > 2500 {
			t.Errorf("granted after %d ms, the lease ended after 2000", r.WaitedMS)
		}
	})
}

func TestSameOwnerManyTimes(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "a", 0, 255), acquire(1, "b", 0, 255))
		p.next(wire.OpAcquired, 1)
		p.next(wire.OpAcquired, 1)
		for _, wait := range []uint8{9, 3, 6, 3, 9} {
			p.send(acquire(7, "a", wait, 5), acquire(7, "b", wait+1, 5))
		}
		time.Sleep(6500 * time.Millisecond)
		for range 5 { // 3, 3, 4, 4, 6
			p.next(wire.OpTimeout, 7)
		}
		p.silent()
		p.send(wire.Request{Op: wire.OpCancel, Owner: 7})
		for range 5 {
			p.next(wire.OpTimeout, 7)
		}
		p.silent()
	})
}

func TestClientThatReadsSlowerThanItAsksKeepsItsSession(t *testing.T) {
	inBubble(t, func(c *Config) { c.WriteBufferBytes, c.MaxInflightPerSession = 4096, 100 }, func(b *bench) {
		const total = 20_000
		p := b.dialSilent()
		go func() {
			for i := range uint64(total) {
				buf, _ := wire.AppendRequest(nil, &wire.Request{Op: wire.OpPing, Owner: i})
				if _, err := p.conn.Write(buf); err != nil {
					return
				}
			}
		}()
		r := wire.NewReplyReader(p.conn)
		for i := range total {
			var reply wire.Reply
			if err := r.Read(&reply); err != nil {
				t.Fatalf("after %d replies: %v", i, err)
			}
			if i%50 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	})
}

func TestRefusalsWaitForTheirReaderToo(t *testing.T) {
	inBubble(t, func(c *Config) { c.WriteBufferBytes, c.MaxInflightPerSession = 4096, 50 }, func(b *bench) {
		const total = 5_000
		p := b.dialSilent()
		bad := strings.Repeat("Q\x00\x00\x00\x00\x00\x00\x00\x07\n", total)
		go func() { _, _ = p.conn.Write([]byte(bad)) }()
		r := wire.NewReplyReader(p.conn)
		for i := range total {
			var reply wire.Reply
			if err := r.Read(&reply); err != nil {
				t.Fatalf("after %d refusals: %v", i, err)
			}
			if i%50 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	})
}

func TestLossOfLeadershipAnswersAFullSession(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(0, "a", 0, 255), acquire(0, "b", 0, 255))
		p.next(wire.OpAcquired, 0)
		p.next(wire.OpAcquired, 0)
		n := b.srv.cfg.MaxInflightPerSession
		var reqs []wire.Request
		for i := range n {
			reqs = append(reqs, acquire(uint64(i), []string{"a", "b"}[i%2], 200, 5))
		}
		p.send(reqs...)
		b.log.mu.Lock()
		b.log.hint = strings.Repeat("n", 250) + ":7420"
		b.log.mu.Unlock()
		b.srv.Follow()
		for range n {
			if r, ok := <-p.got; !ok || r.Op != wire.OpMoved {
				t.Fatalf("%c, open %v: want Moved for each of %d", r.Op, ok, n)
			}
		}
	})
}

// stuckConn is like TLS to a client that does not read: closing it wants to say
// goodbye first.
type stuckConn struct{ net.Conn }

func (c stuckConn) Close() error {
	time.Sleep(5 * time.Second)
	return c.Conn.Close()
}
func (c stuckConn) NetConn() net.Conn { return c.Conn }

func TestClosingASessionHoldsUpNobody(t *testing.T) {
	inBubble(t, func(c *Config) { c.WriteTimeout = time.Second }, func(b *bench) {
		good := b.dial()
		client, server := net.Pipe()
		defer client.Close()
		b.srv.admit(stuckConn{server})
		p := &peer{t: t, conn: client, srv: server}
		p.send(acquire(1, "k", 0, 100), acquire(2, "k", 2, 100)) // nobody reads
		b.log.set(true, errBroken)
		p.send(acquire(3, "other", 0, 100))
		time.Sleep(999 * time.Millisecond) // the write is about to fail
		go func() { time.Sleep(5 * time.Millisecond); b.log.set(false, errBroken); b.srv.do(func() {}) }()
		start := time.Now()
		time.Sleep(10 * time.Millisecond)
		good.send(wire.Request{Op: wire.OpPing, Owner: 1})
		<-good.got
		if d := time.Since(start); d > 100*time.Millisecond {
			t.Errorf("everybody waited %s for one session's end", d)
		}
	})
}

func TestShortGraceStillAnswersTheQueue(t *testing.T) {
	inBubble(t, func(c *Config) { c.CloseGrace = 50 * time.Millisecond }, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 100), acquire(2, "k", 60, 10))
		p.next(wire.OpAcquired, 1)
		b.srv.Follow()
		p.send(wire.Request{Op: wire.OpPing, Owner: 3}) // its Moved begins the grace
		p.next(wire.OpMoved, 3)
		p.next(wire.OpMoved, 2)
	})
}

func TestShutdownTwiceAndTooLate(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dialSilent()
		p.send(acquire(1, "k", 0, 100), acquire(2, "k", 60, 10)) // the writer is stuck
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		done := make(chan struct{})
		for range 8 {
			go func() { _ = b.srv.Shutdown(ctx); done <- struct{}{} }()
		}
		for range 8 {
			<-done
		}
		b.srv.Follow()
		b.takeOver()
		if b.srv.Alive(time.Second) == nil {
			t.Error("alive after shutdown")
		}
	})
}

func TestFrozenLeaderKeepsShortLeasesToo(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 2))
		token := p.next(wire.OpAcquired, 1).Token
		p.send(acquire(2, "k", 200, 8))
		time.Sleep(1900 * time.Millisecond)
		b.freeze(time.Minute) // the renewal waits in the socket meanwhile
		p.send(keep(3, "k", token, 8))
		p.next(wire.OpKept, 3)
		p.silent()
	})
}

func TestSlowLogIsNotTakenForAFrozenProcess(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(acquire(1, "k", 0, 5))
		p.next(wire.OpAcquired, 1)
		p.send(acquire(2, "k", 60, 5))
		b.log.set(true, nil)
		time.Sleep(4 * time.Second)
		b.log.set(false, nil)
		if r := p.next(wire.OpAcquired, 2); r.WaitedMS < 5000 || r.WaitedMS > 5050 {
			t.Errorf("the lease of 5 s ended after %d ms", r.WaitedMS)
		}
	})
}
