package frontend

import (
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
	"github.com/holdfast-lock/holdfast/wire"
)

// take decides or proposes everything in one session's input.
func (q *sequencer) take(in *inbound) {
	for i := range in.reqs {
		r := &in.reqs[i]
		switch {
		case r.op == wire.OpCancel:
			q.cancel(in.sess, r.owner)
		case !q.leading:
			q.moved(in.sess, r.owner)
		default:
			q.decide(in.sess, r)
		}
	}
}

func (q *sequencer) decide(s *session, r *request) {
	switch r.op {
	case wire.OpAcquire:
		q.acquire(s, r)
	case wire.OpRelease:
		q.release(r.key, r.token, s, r.owner)
	case wire.OpKeep:
		// Only the log may say that a token is or is not held: a leader that
		// has been deposed without knowing it would be wrong about both.
		q.add(fsm.Op{Kind: fsm.KindKeep, Key: r.key, Token: r.token, Lease: time.Duration(r.lease) * time.Second},
			q.aim(r.key, r.token, s, r.owner))
	case wire.OpQuery:
		q.query(s, r)
	case wire.OpPing:
		q.reply(s, &wire.Reply{Op: wire.OpPong, Owner: r.owner}, grantRef{})
	}
}

// acquire grants, queues or refuses, as the matrix of PROTOCOL.md says.
func (q *sequencer) acquire(s *session, r *request) {
	q.stats.acquires.Add(1)
	w := &waiter{
		sess: s, owner: r.owner, lease: r.lease, readAt: r.readAt,
		waitEnd: r.readAt + time.Duration(r.wait)*time.Second,
	}
	k := q.keys[r.key]
	if k == nil && r.wait == 0 {
		if _, held := q.held(r.key); held {
			q.answer(w, wire.OpTimeout) // the commonest refusal leaves no trace
			return
		}
	}
	if k == nil {
		k = q.state(r.key)
	}
	w.key = k
	free := k.holder == 0 && k.n == 0
	switch {
	case !free && r.wait == 0:
		q.answer(w, wire.OpTimeout)
	case len(q.ops) >= q.cfg.MaxQueue,
		free && q.table.Len()+q.grants >= q.cfg.MaxGrants,
		!free && (k.n >= q.cfg.MaxWaitersPerKey || len(q.waits) >= q.cfg.MaxWaiters):
		q.answer(w, wire.OpBusy)
		q.rest(k)
	case free:
		q.grant(w, false)
	default:
		q.enqueue(w, false)
	}
}

// release proposes the end of exactly one grant and, in the same entry, the
// grant that follows it. Without a session it is our own: a grant that its
// client never heard of.
func (q *sequencer) release(key string, token uint64, s *session, owner uint64) {
	r := q.aim(key, token, s, owner)
	q.add(fsm.Op{Kind: fsm.KindRelease, Key: key, Token: token}, r)
	if r.stray {
		return
	}
	r.key.holder = 0
	if r.key.n > 0 {
		q.grantHead(r.key, true)
	}
}

// cancel takes a session's queued acquires with this owner out of the queue.
func (q *sequencer) cancel(s *session, owner uint64) {
	for w := s.waiters[owner]; w != nil; w = s.waiters[owner] {
		q.dequeue(w)
		q.answer(w, wire.OpTimeout)
		q.rest(w.key)
	}
}

// query answers from the applied state, as PROTOCOL.md documents.
func (q *sequencer) query(s *session, r *request) {
	reply := wire.Reply{Op: wire.OpState, Owner: r.owner}
	if g, ok := q.table.Lookup(r.key); ok && g.Deadline > q.clock.base {
		reply.Token, reply.Holder = g.Token, g.Owner
		reply.RemainingMS = uint32((g.Deadline - q.clock.base) / time.Millisecond)
	}
	if k := q.keys[r.key]; k != nil {
		reply.Waiters = uint32(k.n)
	}
	q.reply(s, &reply, grantRef{})
}

// answer gives an acquire its end without a grant.
func (q *sequencer) answer(w *waiter, op wire.Op) {
	switch op {
	case wire.OpTimeout:
		q.stats.timeouts.Add(1)
	case wire.OpBusy:
		q.stats.busy.Add(1)
	}
	q.reply(w.sess, &wire.Reply{Op: op, Owner: w.owner}, grantRef{})
}

// moved answers a request that was not executed here and never will be.
func (q *sequencer) moved(s *session, owner uint64) {
	q.stats.moved.Add(1)
	q.reply(s, &wire.Reply{Op: wire.OpMoved, Owner: owner, Text: []byte(q.log.LeaderClientAddr())}, grantRef{})
	s.move()
}

// reply hands one reply to a session's outbox. False means that the client
// will not see it: the session has ended, or does not read and now ends.
func (q *sequencer) reply(s *session, r *wire.Reply, grant grantRef) bool {
	if s.closed || !s.out.put(r, grant) {
		s.giveRoom(1)
		s.abort()
		return false
	}
	if !s.dirty {
		s.dirty = true
		q.dirty = append(q.dirty, s)
	}
	return true
}

// ended forgets a session: its queued acquires leave the queue, and the grants
// whose reply never reached the socket are given back at once. A grant still
// on its way is given back when it arrives.
func (q *sequencer) ended(s *session, lost []grantRef) {
	s.closed = true
	for owner := range s.waiters {
		for w := s.waiters[owner]; w != nil; w = s.waiters[owner] {
			q.dequeue(w)
			q.rest(w.key)
		}
	}
	for _, g := range lost {
		q.giveBack(g)
	}
}

// giveBack releases a grant that its client cannot know of. A node that does
// not lead leaves it to the lease.
func (q *sequencer) giveBack(g grantRef) {
	if q.leading {
		q.stats.orphans.Add(1)
		q.release(g.key, g.token, nil, 0)
	}
}
