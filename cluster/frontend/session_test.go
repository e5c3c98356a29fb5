package frontend

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// raw sends bytes as they are.
func (p *peer) raw(b string) {
	p.t.Helper()
	if _, err := p.conn.Write([]byte(b)); err != nil {
		p.t.Fatalf("write: %v", err)
	}
	synctest.Wait()
}

func TestBadContentIsRefusedAndTheSessionGoesOn(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		owner := "\x00\x00\x00\x00\x00\x00\x00\x07"
		p.raw("A\x00\x05" + owner + "\n")         // empty key
		p.raw("A\x00\x05" + owner + "\xff\xfe\n") // not UTF-8
		p.raw("A\x00\x00" + owner + "k\n")        // lease 0
		for range 3 {
			p.next(wire.OpRefused, 7)
		}
		p.send(acquire(8, "k", 0, 10))
		p.next(wire.OpAcquired, 8)
		if n := b.srv.Stats().Refused; n != 3 {
			t.Errorf("%d refusals counted, want 3", n)
		}
	})
}

func TestBadFramesAreRefusedAndTheSessionCloses(t *testing.T) {
	for name, input := range map[string]struct {
		bytes string
		owner uint64
		first string
	}{
		"unknown op":  {"Z", 0, ""},
		"version":     {"H\x09\x00\x00\x00\x00\x00\x00\x00\x01x\n", 0, ""},
		"no newline":  {"P\x00\x00\x00\x00\x00\x00\x00\x01x", 0, ""},
		"long key":    {"A\x00\x05\x00\x00\x00\x00\x00\x00\x00\x09" + strings.Repeat("k", 513), 9, ""},
		"http":        {"GET / HTTP/1.1\r\n\r\n", 0, ""},
		"late hello":  {"H\x01\x00\x00\x00\x00\x00\x00\x00\x05me\n", 5, "P\x00\x00\x00\x00\x00\x00\x00\x03\n"},
		"tls attempt": {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bench) {
				p, other := b.dial(), b.dial()
				p.raw(input.first)
				if input.first != "" {
					p.next(wire.OpPong, 3)
				}
				p.raw(input.bytes)
				p.next(wire.OpRefused, input.owner)
				p.ended()
				other.send(acquire(1, "k", 0, 10))
				other.next(wire.OpAcquired, 1)
			})
		})
	}
}

func TestTruncatedFrameExecutesNothing(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.raw("A\x00\x05\x00\x00\x00\x00\x00\x00\x00\x09key")
		p.conn.Close()
		synctest.Wait()
		if b.table.Len() != 0 || b.srv.Stats().Sessions != 0 {
			t.Errorf("%d grants, %d sessions", b.table.Len(), b.srv.Stats().Sessions)
		}
	})
}

func TestSilentAndDribblingSessionsAreReaped(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		silent, dribbler, idle := b.dial(), b.dial(), b.dial()
		idle.send(wire.Request{Op: wire.OpPing, Owner: 1})
		idle.next(wire.OpPong, 1)
		start := time.Now()
		go func() {
			for _, c := range "A\x01\x05\x00\x00\x00\x00\x00\x00\x00\x09" + strings.Repeat("k", 100) {
				time.Sleep(time.Second)
				if _, err := dribbler.conn.Write([]byte{byte(c)}); err != nil {
					return
				}
			}
		}()
		dribbler.ended()
		if d := time.Since(start); d > b.srv.cfg.FrameTimeout+2*time.Second {
			t.Errorf("dribbling session reaped after %s", d)
		}
		silent.ended()
		if d := time.Since(start); d > b.srv.cfg.FirstFrameTimeout+time.Second {
			t.Errorf("silent session reaped after %s", d)
		}
		time.Sleep(time.Hour)
		idle.send(wire.Request{Op: wire.OpPing, Owner: 2}) // idle is no offence
		idle.next(wire.OpPong, 2)
	})
}

func TestSteadyStreamIsNotTakenForADribble(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		frame := "P\x00\x00\x00\x00\x00\x00\x00\x01\n"
		p.raw(frame[:5])
		for range 100 { // the buffer always ends in half a frame
			time.Sleep(time.Second)
			p.raw(frame[5:] + frame[:5])
			p.next(wire.OpPong, 1)
		}
	})
}

func TestSessionAtItsBoundIsNotReadOn(t *testing.T) {
	inBubble(t, func(c *Config) { c.MaxInflightPerSession = 2 }, func(b *bench) {
		holder, p := b.dial(), b.dial()
		holder.send(acquire(1, "k", 0, 100))
		holder.next(wire.OpAcquired, 1)
		p.send(acquire(2, "k", 5, 10), acquire(3, "k", 6, 10), wire.Request{Op: wire.OpPing, Owner: 4})
		p.silent()
		p.next(wire.OpTimeout, 2)
		p.next(wire.OpPong, 4)
		p.next(wire.OpTimeout, 3)
	})
}

func TestNeverReaderIsClosedAndBounded(t *testing.T) {
	inBubble(t, func(c *Config) { c.WriteBufferBytes = 4096 }, func(b *bench) {
		p, good := b.dialSilent(), b.dial()
		pings := make([]wire.Request, 200)
		for i := range pings {
			pings[i] = wire.Request{Op: wire.OpPing, Owner: uint64(i)}
		}
		var buf []byte
		for i := range pings {
			buf, _ = wire.AppendRequest(buf, &pings[i])
		}
		for range 100 {
			if _, err := p.conn.Write(buf); err != nil {
				break
			}
			synctest.Wait()
		}
		good.send(acquire(1, "k", 0, 10))
		good.next(wire.OpAcquired, 1)
		if n := b.srv.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions, want only the good one", n)
		}
	})
}

func TestLabelOfTheHelloIsKeptWithTheGrant(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := b.dial()
		p.send(wire.Request{Op: wire.OpHello, Version: wire.Version, Owner: 1, Text: []byte("host/app/1")}, acquire(2, "k", 0, 10))
		p.next(wire.OpHelloOK, 1)
		p.next(wire.OpAcquired, 2)
		g, ok := b.table.Lookup("k")
		if !ok || g.Label != "host/app/1" || g.Addr != "pipe" || g.Owner != 2 {
			t.Errorf("grant %+v", g)
		}
	})
}

func TestSessionsBeyondTheBoundAreClosed(t *testing.T) {
	inBubble(t, func(c *Config) { c.MaxSessions = 1 }, func(b *bench) {
		first, second := b.dial(), b.dial()
		second.ended()
		first.send(wire.Request{Op: wire.OpPing, Owner: 1})
		first.next(wire.OpPong, 1)
	})
}
