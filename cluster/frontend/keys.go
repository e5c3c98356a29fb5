package frontend

import "time"

// granting stands for a holder's token that is not known yet, because the
// grant is proposed and not applied. No real token has this value: the counter
// stays under 2^53.
const granting = ^uint64(0)

// waiter is one acquire from its arrival to its answer.
type waiter struct {
	sess    *session
	key     *keyState
	owner   uint64
	lease   uint8
	readAt  time.Duration // monotonic: when it was read
	waitEnd time.Duration // monotonic: when its wait ends; readAt for wait=0

	next, prev *waiter // the key's queue
	// The session's queued acquires with this owner, the newest first.
	nextOwner, prevOwner *waiter
	heapPos              int // in the wait heap
}

// keyState is what the sequencer knows of a key beyond the table. It exists
// only while the key has waiters or operations on their way through the log;
// for every other key the table alone is the truth.
type keyState struct {
	key      string
	inflight int // operations built or proposed and not settled, but strays
	// holder predicts the key's holder once all of those are applied: a token,
	// 0 for free, or granting. The table decides; a wrong prediction costs one
	// more log entry and nothing else.
	holder     uint64
	head, tail *waiter
	n          int
}

func (k *keyState) pushBack(w *waiter) {
	w.prev, w.next = k.tail, nil
	if k.tail != nil {
		k.tail.next = w
	} else {
		k.head = w
	}
	k.tail = w
	k.n++
}

func (k *keyState) pushFront(w *waiter) {
	w.prev, w.next = nil, k.head
	if k.head != nil {
		k.head.prev = w
	} else {
		k.tail = w
	}
	k.head = w
	k.n++
}

func (k *keyState) unlink(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		k.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		k.tail = w.prev
	}
	w.next, w.prev = nil, nil
	k.n--
}

// waitHeap orders queued acquires by the end of their wait (container/heap).
type waitHeap []*waiter

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].waitEnd < h[j].waitEnd }
func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapPos, h[j].heapPos = i, j
}

func (h *waitHeap) Push(x any) {
	w := x.(*waiter)
	w.heapPos = len(*h)
	*h = append(*h, w)
}

func (h *waitHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return w
}
