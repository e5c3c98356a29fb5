package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// chaos is a server that grants whatever it feels like, late, in any order or
// not at all, moves, and drops sessions; and remembers what it did.
type chaos struct {
	w   *world
	mu  sync.Mutex
	rnd *rand.Rand

	token   uint64
	fates   map[uint64]byte          // by owner: what became of the acquire; 0 = nothing yet
	lost    map[uint64]bool          // by owner: possibly received once, and not moved
	protect map[uint64]time.Duration // by token: until when the server protects the grant
	keys    map[uint64]string        // by token
}

func (s *chaos) serve(r received) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delay := time.Duration(s.rnd.IntN(1500)) * time.Millisecond
	switch r.Op {
	case wire.OpAcquire:
		if s.lost[r.Owner] {
			s.w.t.Errorf("owner %d came again after a possible send", r.Owner)
		}
		s.lost[r.Owner] = true
		s.acquire(r, delay, s.rnd.IntN(10))
	case wire.OpKeep:
		if n := s.rnd.IntN(10); n < 7 {
			s.protect[r.Token] = max(s.protect[r.Token], s.w.now()+time.Duration(r.Lease)*time.Second)
			s.later(delay/4, r, wire.Reply{Op: wire.OpKept})
		} else if n == 7 {
			_ = r.p.conn.Close()
		}
	case wire.OpRelease:
		if s.keys[r.Token] != r.key {
			s.w.t.Errorf("release of token %d for %q, which is of %q", r.Token, r.key, s.keys[r.Token])
		}
		delete(s.protect, r.Token)
		s.later(delay/4, r, wire.Reply{Op: wire.OpReleased})
	case wire.OpQuery:
		s.later(delay/4, r, wire.Reply{Op: wire.OpState})
	}
}

func (s *chaos) acquire(r received, delay time.Duration, what int) {
	switch {
	case what < 5: // granted, now or after some wait, of which the server tells
		s.token++
		token, waited := s.token, time.Duration(0)
		s.keys[token] = r.key
		if what < 2 {
			waited = delay
		}
		s.fates[r.Owner] = 'A'
		s.protect[token] = s.w.now() + waited + time.Duration(r.Lease)*time.Second
		s.later(delay, r, wire.Reply{Op: wire.OpAcquired, Token: token, WaitedMS: uint32(waited.Milliseconds())})
	case what < 7:
		s.fates[r.Owner] = 'T'
		s.later(delay, r, wire.Reply{Op: wire.OpTimeout})
	case what < 8:
		s.lost[r.Owner] = false
		s.later(delay, r, wire.Reply{Op: wire.OpMoved})
	case what < 9:
		s.fates[r.Owner] = 'A' // and nobody hears of it
		_ = r.p.conn.Close()
	default:
		s.fates[r.Owner] = '?'
	}
}

func (s *chaos) later(d time.Duration, r received, rep wire.Reply) {
	time.AfterFunc(d, func() { r.answer(rep) })
}

// Whatever happens, every acquire ends in time and as what the server knows it
// is, nothing is sent again after a possible send, and the client never
// believes longer than the server protects.
//
// Many small worlds instead of few large ones: the race detector of Go 1.26
// crashes when too many timers fire in one synctest bubble (golang/go#78156).
func TestRandomServer(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s := &chaos{
					w: w, rnd: rand.New(rand.NewPCG(seed, 1)), fates: map[uint64]byte{}, lost: map[uint64]bool{},
					protect: map[uint64]time.Duration{}, keys: map[uint64]string{},
				}
				w.serve(s.serve)
				c := w.open(WithSessions(1 + int(seed%4)))
				var wg sync.WaitGroup
				for i := range 12 {
					wg.Go(func() {
						for range 3 {
							s.once(c, fmt.Sprint("k", i))
						}
					})
				}
				wg.Wait()
				c.Close()
			})
		})
	}
}

func (s *chaos) once(c *Client, key string) {
	w, t := s.w, s.w.t
	s.mu.Lock()
	wait := time.Duration(s.rnd.IntN(4000)) * time.Millisecond
	lease := time.Duration(1+s.rnd.IntN(4)) * time.Second
	patience := time.Duration(s.rnd.IntN(8000)) * time.Millisecond
	hold := time.Duration(s.rnd.IntN(6000)) * time.Millisecond
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := w.now()
	l, err := c.Acquire(ctx, key, WithWait(wait), WithLease(lease))
	if took := w.now() - began; took > min(wait+transport, patience+cancelGrace)+time.Millisecond {
		t.Errorf("%s: took %s with a wait of %s and a context of %s", key, took, wait, patience)
	}
	if err != nil {
		definite := 0
		for _, k := range []error{ErrTimeout, ErrUnavailable, context.DeadlineExceeded, ErrIndeterminate} {
			if errors.Is(err, k) {
				definite++
			}
		}
		if definite != 1 {
			t.Errorf("%s: %d kinds: %v", key, definite, err)
		}
		return
	}
	over := time.NewTimer(hold)
	defer over.Stop()
	for held := true; held; {
		l.mu.Lock()
		end := l.end
		l.mu.Unlock()
		s.mu.Lock()
		if end > s.protect[l.Token()] {
			t.Errorf("%s: believes for %s longer than is true", key, end-s.protect[l.Token()])
		}
		s.mu.Unlock()
		select {
		case <-l.Lost():
			held = false
		case <-over.C:
			held = false
		case <-time.After(400 * time.Millisecond):
		}
	}
	_ = l.Release(t.Context())
}
