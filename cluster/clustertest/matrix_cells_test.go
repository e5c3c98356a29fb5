package clustertest

import (
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

func answered(req wire.Request, op wire.Op) func(*cell) {
	return func(x *cell) {
		req.Text = []byte(x.key)
		x.answered(req, op)
	}
}

func acquireAnswered(wait uint8, op wire.Op) func(*cell) {
	return func(x *cell) {
		begin := time.Now()
		x.answered(x.acquire(wait, 0, x.key), op)
		if took := time.Since(begin); wait > 0 && took > time.Duration(wait)*time.Second/2 {
			x.Fatalf("answered after %v, not at once", took)
		}
	}
}

func acquireFree(wait uint8) func(*cell) {
	return func(x *cell) {
		owner := NewOwner()
		x.c.Send(x.acquire(wait, owner, x.key))
		x.granted(x.c, owner)
	}
}

// acquireQueues expects one acquire to be granted in its turn and another, behind
// it, to be answered when its wait is over.
func acquireQueues(x *cell) {
	owner := x.c.Queue(x.key, 60, 2, uint32(len(x.waiting)+1))
	if len(x.waiting)+1 < maxWaitersPerKey {
		late := Dial(x.T, x.c.RemoteAddr().String())
		begin := time.Now()
		lateOwner := late.Queue(x.key, 1, 2, uint32(len(x.waiting)+2))
		late.Expect(wire.OpTimeout, lateOwner)
		if took := time.Since(begin); took < time.Second {
			x.Fatalf("the wait of 1 s ended after %v", took)
		}
	}
	x.waiting = append(x.waiting, waiter{x.c, owner})
	x.untouched()
	if op := x.holder.Release(x.key, x.token); op != wire.OpReleased {
		x.Fatalf("release: %c", op)
	}
	x.handedOver()
}

// acquireServerFull: what would need room in the table is refused. A key that is
// held needs none: it is handed over in the place it has.
func acquireServerFull(wait uint8) func(*cell) {
	return func(x *cell) {
		x.answered(x.acquire(wait, 0, x.key+"/free"), wire.OpBusy)
		if s := x.c.Query(x.key + "/free"); s.Token != 0 || s.Waiters != 0 {
			x.Fatalf("the key that was refused says %+v", s)
		}
		if wait == 0 {
			x.answered(x.acquire(wait, 0, x.key), wire.OpTimeout)
			return
		}
		acquireQueues(x)
	}
}

// acquireAgainFree: the owner's first grant is over; the same owner gets a new one.
func acquireAgainFree(x *cell) {
	owner := NewOwner()
	x.c.Send(x.acquire(0, owner, x.key))
	x.granted(x.c, owner)
	x.c.Send(x.acquire(0, owner, x.key))
	x.granted(x.c, owner)
}

// acquireAgain: the holder's own owner neither gets its token again nor renews.
func acquireAgain(x *cell) {
	before := x.c.Query(x.key).RemainingMS
	req := x.acquire(0, x.owner, x.key)
	req.Lease = 200
	x.c.Send(req)
	x.c.Expect(wire.OpTimeout, x.owner)
	x.holder.Send(req) // on its own session too
	x.holder.Expect(wire.OpTimeout, x.owner)
	if after := x.c.Query(x.key).RemainingMS; after > before {
		x.Fatalf("the lease had %d ms left, then %d", before, after)
	}
	x.untouched()
}

func acquireAgainMoved(x *cell) {
	owner := NewOwner()
	for range 2 {
		x.c.Send(x.acquire(5, owner, x.key))
		x.c.Expect(wire.OpMoved, owner)
	}
}

func releaseExact(x *cell) {
	// Any session that knows the token may release.
	if op := x.c.Release(x.key, x.token); op != wire.OpReleased {
		x.Fatalf("release: %c", op)
	}
	if len(x.waiting) > 0 {
		// In the same commit: at no time was the key free.
		if s := x.c.Query(x.key); s.Holder != x.waiting[0].owner {
			x.Fatalf("right after the release the key says %+v", s)
		}
	}
	if op := x.c.Release(x.key, x.token); op != wire.OpNotHeld {
		x.Fatalf("second release: %c", op)
	}
	x.handedOver()
}

func keepExact(x *cell) {
	if op := x.c.Keep(x.key, x.token, 200); op != wire.OpKept {
		x.Fatalf("keep: %c", op)
	}
	s := x.c.Query(x.key)
	if s.RemainingMS <= uint32(x.lease)*1000 || s.RemainingMS > 200_000 {
		x.Fatalf("%d ms remain after a keep for 200 s", s.RemainingMS)
	}
	x.lease = 200
	x.untouched()
}

func cancelQueued(x *cell) {
	if x.state == queueFull {
		w := x.waiting[0]
		x.waiting = x.waiting[1:]
		w.c.Send(wire.Request{Op: wire.OpCancel, Owner: w.owner})
		w.c.Expect(wire.OpTimeout, w.owner)
		x.untouched()
		return
	}
	owner := x.c.Queue(x.key, 60, 2, uint32(len(x.waiting)+1))
	// Another session's cancel of the same number is none of its business.
	x.holder.Send(wire.Request{Op: wire.OpCancel, Owner: owner})
	x.holder.Quiet()
	x.c.Quiet()
	x.c.Send(wire.Request{Op: wire.OpCancel, Owner: owner})
	x.c.Expect(wire.OpTimeout, owner)
	x.untouched()
	x.c.Quiet()
}

// cancelQueuedServerFull: what queued before the server became full is still
// cancelled as always. The state's fixture has filled it already, so one place is
// made and filled again.
func cancelQueuedServerFull(x *cell) {
	place := x.key + "/0"
	token := x.c.Query(place).Token
	if op := x.c.Release(place, token); op != wire.OpReleased {
		x.Fatalf("release: %c", op)
	}
	owner := x.c.Queue(x.key, 60, 2, 1)
	refill := x.holder.Lock(place, 60)
	x.Cleanup(func() { x.holder.Release(place, refill) })
	x.c.Send(wire.Request{Op: wire.OpCancel, Owner: owner})
	x.c.Expect(wire.OpTimeout, owner)
	x.untouched()
}

func cancelNothing(x *cell) {
	x.c.Send(wire.Request{Op: wire.OpCancel, Owner: NewOwner()}, wire.Request{Op: wire.OpCancel, Owner: x.owner})
	owner := NewOwner()
	x.c.Send(wire.Request{Op: wire.OpPing, Owner: owner})
	op := wire.OpPong
	if x.state == follower {
		op = wire.OpMoved
	}
	x.c.Expect(op, owner) // the first reply there is
	x.untouched()
}

func query(x *cell) {
	s := x.answered(wire.Request{Op: wire.OpQuery, Text: []byte(x.key)}, wire.OpState)
	if s.Token != x.token || s.Holder != x.owner || int(s.Waiters) != len(x.waiting) {
		x.Fatalf("got %+v, want token %d holder %d waiters %d", s, x.token, x.owner, len(x.waiting))
	}
	most := uint32(x.lease) * 1000
	if x.token == 0 {
		most = 0
	}
	if s.RemainingMS > most || x.token != 0 && s.RemainingMS == 0 {
		x.Fatalf("%d ms remain of at most %d", s.RemainingMS, most)
	}
}

func leaseRunsOut(x *cell) {
	inTime := func() {
		x.Helper()
		lease := time.Duration(x.lease) * time.Second
		if took := time.Since(x.sent); took < lease || took > lease+5*time.Second {
			x.Fatalf("a lease of %v ended after %v", lease, took)
		}
	}
	if len(x.waiting) == 0 {
		Eventually(x, func() error { return freeOrHeld(x.c.Query(x.key), 0) })
		inTime()
		if op := x.holder.Release(x.key, x.token); op != wire.OpNotHeld {
			x.Fatalf("release of a lease that ran out: %c", op)
		}
		return
	}
	w := x.waiting[0]
	x.waiting = x.waiting[1:]
	x.granted(w.c, w.owner)
	inTime()
	x.handedOver()
	if op := x.holder.Keep(x.key, x.token, 5); op != wire.OpNotHeld {
		x.Fatalf("keep of a lease that ran out: %c", op)
	}
}

func sessionCloses(x *cell) {
	for len(x.waiting) > 0 {
		_ = x.waiting[0].c.Close()
		x.waiting = x.waiting[1:]
		Eventually(x, func() error { return waiters(x.c.Query(x.key), len(x.waiting)) })
	}
	_ = x.holder.Close()
	x.holder = x.c
	x.untouched()
	if op := x.c.Keep(x.key, x.token, x.lease); op != wire.OpKept {
		x.Fatalf("keep after the session closed: %c", op)
	}
}
