package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// lessor is a server that protects one grant, behind a network that delays and
// breaks at random. It knows until when it protects it.
type lessor struct {
	w    *network
	rand *rand.Rand
	wg   sync.WaitGroup

	mu    sync.Mutex
	token uint64
	until time.Time
}

func (v *lessor) draw(n int) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.rand.IntN(n)
}

func (v *lessor) delay() time.Duration {
	if v.draw(4) > 0 {
		return time.Duration(v.draw(20)) * time.Millisecond
	}
	return time.Duration(v.draw(2500)) * time.Millisecond
}

// serve plays one connection. Each reply takes its own time.
func (v *lessor) serve(p *peer) {
	for {
		req, err := p.read()
		if err != nil {
			return
		}
		if req.Op != wire.OpPing && v.draw(6) == 0 {
			_ = p.conn.Close()
			return
		}
		v.wg.Go(func() {
			read := time.Now()
			time.Sleep(v.delay()) // in the server, up to the stamp
			rep := wire.Reply{Op: req.Op, Owner: req.Owner}
			now := time.Now()
			v.mu.Lock()
			held := v.token != 0 && now.Before(v.until)
			switch req.Op {
			case wire.OpAcquire:
				if held {
					rep.Op = wire.OpTimeout
					break
				}
				v.token++
				v.until = now.Add(time.Duration(req.Lease) * time.Second)
				rep.Token, rep.WaitedMS = v.token, uint32(now.Sub(read)/time.Millisecond)
			case wire.OpKeep:
				if !held || req.Token != v.token {
					rep.Op = wire.OpNotHeld
					break
				}
				v.until = now.Add(time.Duration(req.Lease) * time.Second)
			case wire.OpRelease:
				if !held || req.Token != v.token {
					rep.Op = wire.OpNotHeld
					break
				}
				v.until = now
			case wire.OpQuery:
				rep.Op = wire.OpState
			case wire.OpCancel:
				v.mu.Unlock()
				return
			}
			v.mu.Unlock()
			time.Sleep(v.delay()) // on the way back
			buf, _ := wire.AppendReply(nil, &rep)
			_, _ = p.conn.Write(buf)
		})
	}
}

// The client stops believing before the server stops protecting, whatever the
// network does to requests and replies.
func TestNeverBelievesTooLong(t *testing.T) {
	believed, lostOnes := 0, 0
	for seed := range uint64(40) {
		bubble(t, func(t *testing.T) {
			w := newNetwork(t, "a:1")
			v := &lessor{w: w, rand: rand.New(rand.NewPCG(seed, 1))}
			ctx, cancel := context.WithCancel(context.Background())
			v.wg.Go(func() {
				for {
					select {
					case p := <-w.nodes["a:1"].accept:
						v.wg.Go(func() { v.serve(p) })
					case <-ctx.Done():
						return
					}
				}
			})
			defer v.wg.Wait()
			cl := <-w.opening(WithDialTimeout(10 * time.Second))
			if cl == nil {
				cancel()
				return
			}
			defer cancel()
			defer cl.Close()
			for range 3 {
				l, err := cl.Acquire(ctx, "k", WithWait(5*time.Second), WithLease(time.Duration(1+v.draw(4))*time.Second))
				if err != nil {
					continue
				}
				for range 1000 {
					v.mu.Lock()
					protected := l.Token() == v.token && time.Now().Before(v.until)
					v.mu.Unlock()
					if isLost(l) {
						lostOnes++
						break
					}
					if believed++; !protected {
						v.mu.Lock()
						token, until := v.token, v.until
						v.mu.Unlock()
						t.Fatalf("seed %d: believes in token %d for %v while token %d is protected for %v",
							seed, l.Token(), time.Until(l.Expires()), token, time.Until(until))
					}
					time.Sleep(10 * time.Millisecond)
				}
				_ = l.Release(ctx)
			}
		})
	}
	if believed == 0 || lostOnes == 0 {
		t.Errorf("%d looks, %d locks lost: this tests nothing", believed, lostOnes)
	}
	t.Logf("%d looks, %d locks lost", believed, lostOnes)
}
