package frontend

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
	"github.com/holdfast-lock/holdfast/wire"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "replay TestRandomHistories with this one seed")
	seedsFlag = flag.Uint64("seeds", 60, "how many seeds TestRandomHistories runs")
)

// TestRandomHistories drives the front end with random requests, closed
// sessions, slow and failing logs and changes of leadership, and checks what must
// hold for every history. `-seed N` replays one.
func TestRandomHistories(t *testing.T) {
	if *seedFlag != 0 {
		randomHistory(t, *seedFlag)
		return
	}
	for seed := uint64(1); seed <= *seedsFlag && !t.Failed(); seed++ {
		randomHistory(t, seed)
	}
}

// history is one run and what it has seen.
type history struct {
	*bench
	rnd    *rand.Rand
	seed   uint64
	owner  uint64
	peers  []*tracked
	tokens map[string]uint64 // latest grant a client was told of, by key
}

// tracked is a session with its unanswered requests.
type tracked struct {
	*peer
	open   map[uint64]wire.Request
	order  map[string]uint64 // per key: the latest owner granted from the queue
	closed bool
}

func randomHistory(t *testing.T, seed uint64) {
	inBubble(t, func(c *Config) { c.MaxWaitersPerKey, c.MaxBatchOps = 8, 5 }, func(b *bench) {
		h := &history{bench: b, rnd: rand.New(rand.NewPCG(seed, 3)), seed: seed, tokens: map[string]uint64{}}
		for range 200 {
			h.step()
			synctest.Wait()
			h.collect()
			h.noKeyFreeAndWaitedFor()
		}
		b.log.set(false, nil)
		leading := false
		b.srv.do(func() { leading = b.srv.q.leading })
		if !leading || h.rnd.IntN(2) == 0 {
			b.srv.Follow()
			b.takeOver()
		}
		// Every wait and every lease ends within 255 s: then nothing may be open.
		time.Sleep(520 * time.Second)
		synctest.Wait()
		h.collect()
		for _, p := range h.peers {
			if len(p.open) > 0 && !p.closed {
				t.Errorf("seed %d: %d requests without answer on an open session: %+v", seed, len(p.open), p.open)
			}
		}
		if n := b.table.Len(); n != 0 {
			t.Errorf("seed %d: %d grants outlived their lease", seed, n)
		}
		if st := b.srv.Stats(); st.Waiters != 0 || st.Queue != 0 {
			t.Errorf("seed %d: %d waiters and %d queued operations left", seed, st.Waiters, st.Queue)
		}
	})
}

func (h *history) step() {
	switch n := h.rnd.IntN(100); {
	case len(h.peers) < 3 || n < 3:
		h.peers = append(h.peers, &tracked{peer: h.dial(), open: map[uint64]wire.Request{}, order: map[string]uint64{}})
	case n < 6:
		h.peers[h.rnd.IntN(len(h.peers))].conn.Close()
	case n < 14:
		h.log.set(true, nil)
	case n < 30:
		h.log.set(false, nil)
	case n < 32:
		h.log.set(false, []error{fsm.ErrNotExecuted, fsm.ErrUnknown}[h.rnd.IntN(2)])
	case n < 36:
		h.srv.Follow()
		h.log.set(false, nil)
		h.takeOver()
	case n < 50:
		time.Sleep(time.Duration(h.rnd.IntN(3000)) * time.Millisecond)
	default:
		h.request()
	}
}

func (h *history) request() {
	p := h.peers[h.rnd.IntN(len(h.peers))]
	key := fmt.Sprintf("k%d", h.rnd.IntN(4))
	var buf []byte
	for range h.rnd.IntN(4) + 1 {
		h.owner++
		var req wire.Request
		switch n := h.rnd.IntN(10); {
		case n < 5:
			req = acquire(h.owner, key, uint8(h.rnd.IntN(4)*h.rnd.IntN(40)), uint8(h.rnd.IntN(5)+1))
		case n < 8:
			req = release(h.owner, key, h.tokens[key]+uint64(h.rnd.IntN(8)/7))
		case n < 9:
			req = keep(h.owner, key, h.tokens[key], uint8(h.rnd.IntN(5)+1))
		default:
			req = query(h.owner, key)
		}
		buf, _ = wire.AppendRequest(buf, &req)
		p.open[h.owner] = req
	}
	_ = p.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = p.conn.Write(buf) // the session may be closed: then its requests are moot
}

// collect reads all replies and checks each against its request.
func (h *history) collect() {
	for _, p := range h.peers {
		for more := !p.closed; more; {
			select {
			case r, ok := <-p.got:
				if !ok {
					p.closed, more = true, false
					break
				}
				h.reply(p, r)
			default:
				more = false
			}
		}
	}
}

func (h *history) reply(p *tracked, r wire.Reply) {
	req, ok := p.open[r.Owner]
	if !ok {
		h.t.Fatalf("seed %d: %c for %d, which is not open (answered twice?)", h.seed, r.Op, r.Owner)
	}
	delete(p.open, r.Owner)
	allowed := map[wire.Op]string{wire.OpAcquire: "ATBM", wire.OpRelease: "RNM", wire.OpKeep: "KNM", wire.OpQuery: "SM"}[req.Op]
	found := false
	for _, c := range allowed {
		found = found || byte(c) == byte(r.Op)
	}
	if !found {
		h.t.Fatalf("seed %d: %c answered with %c", h.seed, req.Op, r.Op)
	}
	if r.Op != wire.OpAcquired {
		return
	}
	key := string(req.Text)
	h.tokens[key] = max(h.tokens[key], r.Token)
	// Within one session and key, queued acquires are granted in their order.
	if req.Wait > 0 {
		if prev := p.order[key]; prev > r.Owner {
			h.t.Errorf("seed %d: %s granted to %d after %d", h.seed, key, r.Owner, prev)
		}
		p.order[key] = r.Owner
	}
}

// noKeyFreeAndWaitedFor: with nothing of the key in flight, a key that somebody
// waits for is held, unless expiries are put off: until an entry in flight has
// settled, or because the log has just turned something away.
func (h *history) noKeyFreeAndWaitedFor() {
	h.srv.do(func() {
		q := h.srv.q
		putOff := q.flying > 0 || q.mono < q.retryAt
		for _, k := range q.keys {
			if _, held := q.held(k.key); k.inflight == 0 && k.n > 0 && !held && !putOff {
				h.t.Errorf("seed %d: %s is free and %d wait for it", h.seed, k.key, k.n)
			}
			if k.inflight < 0 || k.inflight == 0 && k.n == 0 {
				h.t.Errorf("seed %d: %s has a state without a reason: %+v", h.seed, k.key, k)
			}
		}
		q.finish()
		if wake, ok := q.nextWake(); ok && wake <= q.mono {
			h.t.Errorf("seed %d: it would spin: wakes at %s, now %s", h.seed, wake, q.mono)
		}
		if q.flying < 0 || q.grants < 0 {
			h.t.Errorf("seed %d: %d entries and %d grants in flight", h.seed, q.flying, q.grants)
		}
	})
}
