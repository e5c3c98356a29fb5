package client

import (
	"container/heap"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// maxNap bounds how long the renewer sleeps while locks are held: its timer
// stands still while the machine is suspended, the clock it then reads does not.
const maxNap = 500 * time.Millisecond

// renewer is the one goroutine that keeps all locks of a client: it renews
// each at a third of its lease and ends it when its time has come. Renewals
// themselves run on goroutines of their own, one per lock at most.
type renewer struct {
	c    *Client
	wake chan struct{}

	mu    sync.Mutex
	locks lockHeap
}

func newRenewer(c *Client) *renewer { return &renewer{c: c, wake: make(chan struct{}, 1)} }

// lockHeap orders locks by when they next need something (container/heap).
type lockHeap []*Lock

func (h lockHeap) Len() int           { return len(h) }
func (h lockHeap) Less(i, j int) bool { return h[i].renewAt < h[j].renewAt }
func (h lockHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].pos, h[j].pos = i, j }
func (h *lockHeap) Push(x any)        { l := x.(*Lock); l.pos = len(*h); *h = append(*h, l) }
func (h *lockHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.pos = -1
	return l
}

// add begins to look after a lock whose lease was last begun at started.
func (r *renewer) add(l *Lock, at time.Duration) {
	r.mu.Lock()
	l.renewAt = at
	heap.Push(&r.locks, l)
	first := l.pos == 0
	r.mu.Unlock()
	if first {
		r.poke()
	}
}

func (r *renewer) remove(l *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.pos >= 0 && l.pos < len(r.locks) && r.locks[l.pos] == l {
		heap.Remove(&r.locks, l.pos)
	}
}

func (r *renewer) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *renewer) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if nap, some := r.turn(r.c.cfg.now()); some {
			timer.Reset(nap)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-r.wake:
		case <-r.c.ctx.Done():
			return
		}
	}
}

// turn does what is due and says how long nothing will be.
func (r *renewer) turn(now time.Duration) (nap time.Duration, some bool) {
	var over []*Lock
	r.mu.Lock()
	for len(r.locks) > 0 && r.locks[0].renewAt <= now {
		l := r.locks[0]
		l.mu.Lock()
		end, busy := l.safeEnd(), l.busy
		if now >= end {
			over = append(over, l)
			heap.Pop(&r.locks)
		} else {
			if l.renews && !busy {
				l.busy = true
				r.c.wg.Go(func() { r.renew(l) })
			}
			l.renewAt = end // the next thing to see to, unless the renewal succeeds
			heap.Fix(&r.locks, 0)
		}
		l.mu.Unlock()
	}
	if some = len(r.locks) > 0; some {
		nap = min(max(r.locks[0].renewAt-now, 0), maxNap)
	}
	r.mu.Unlock()
	for _, l := range over {
		l.lose(errors.New("its lease was not renewed in time"))
	}
	return nap, some
}

// renew renews one lock, trying again until it is renewed or over.
func (r *renewer) renew(l *Lock) {
	l.mu.Lock()
	total := l.safeEnd()
	l.mu.Unlock()
	err := l.keep(l.Context(), total) // no longer than the lock itself
	now := r.c.cfg.now()
	l.mu.Lock()
	l.busy = false
	next := l.end - l.lease + l.lease/3
	if err != nil {
		// Answered oddly or refused: as long as the lease goes on, ask again.
		next = now + l.lease/6 + rand.N(l.lease/12)
	}
	next = min(next, l.safeEnd())
	over := l.over != nil
	l.mu.Unlock()
	if over {
		return
	}
	if err != nil {
		r.c.cfg.log.Warn("lock not renewed", "key", l.key, "token", l.token, "err", err)
	}
	r.mu.Lock()
	if l.pos >= 0 && l.pos < len(r.locks) && r.locks[l.pos] == l {
		l.renewAt = next
		heap.Fix(&r.locks, l.pos)
	}
	r.mu.Unlock()
	r.poke()
}
