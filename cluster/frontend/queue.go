package frontend

import (
	"container/heap"

	"github.com/holdfast-lock/holdfast/fsm"
	"github.com/holdfast-lock/holdfast/wire"
)

// enqueue puts w at the tail of its key's queue, or back at its head.
func (q *sequencer) enqueue(w *waiter, front bool) {
	if front {
		w.key.pushFront(w)
	} else {
		w.key.pushBack(w)
	}
	heap.Push(&q.waits, w)
	if w.sess.waiters == nil {
		w.sess.waiters = make(map[uint64]*waiter)
	}
	w.nextOwner = w.sess.waiters[w.owner]
	if w.nextOwner != nil {
		w.nextOwner.prevOwner = w
	}
	w.sess.waiters[w.owner] = w
}

// dequeue takes w out of its key's queue, the wait heap and its session.
func (q *sequencer) dequeue(w *waiter) {
	w.key.unlink(w)
	heap.Remove(&q.waits, w.heapPos)
	switch {
	case w.prevOwner != nil:
		w.prevOwner.nextOwner = w.nextOwner
	case w.nextOwner != nil:
		w.sess.waiters[w.owner] = w.nextOwner
	default:
		delete(w.sess.waiters, w.owner)
	}
	if w.nextOwner != nil {
		w.nextOwner.prevOwner = w.prevOwner
	}
	w.nextOwner, w.prevOwner = nil, nil
}

// endWaits answers the acquires whose wait is over.
func (q *sequencer) endWaits() {
	for len(q.waits) > 0 && q.waits[0].waitEnd <= q.mono {
		w := q.waits[0]
		q.dequeue(w)
		q.answer(w, wire.OpTimeout)
		q.rest(w.key)
	}
}

// expire proposes the end of the leases that have run out, each with the grant
// that follows it. Keys with something on their way are seen to when that has
// settled: it may be the renewal.
func (q *sequencer) expire() {
	if q.mono < q.retryAt {
		return
	}
	if deadline, some := q.table.NextDeadline(); !some || deadline > q.clock.base {
		return
	}
	// A bound of their own: an overload of other work must not keep them out.
	room := q.cfg.MaxBatchOps*q.cfg.MaxEntriesInflight - q.expiring
	if room <= 0 {
		return
	}
	for _, d := range q.table.Due(q.clock.base, room, func(key string) bool {
		k := q.keys[key]
		return k != nil && k.inflight > 0
	}) {
		k := q.state(d.Key)
		q.add(fsm.Op{Kind: fsm.KindExpire, Key: d.Key, Token: d.Token}, record{key: k})
		k.holder = 0
		if k.n > 0 {
			q.grantHead(k, true)
		}
	}
}

// tick stamps the clock into the log when nothing else has for a while, so
// that the next leader's clock starts close behind ours.
func (q *sequencer) tick() {
	if len(q.ops) > 0 || q.flying > 0 || q.mono < max(q.stamped+q.cfg.TickInterval, q.retryAt) || q.table.Len() == 0 {
		return
	}
	q.add(fsm.Op{Kind: fsm.KindTick}, record{})
}
