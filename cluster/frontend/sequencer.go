package frontend

import (
	"log/slog"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
)

// sequencer owns all state that only a leader has: queues, timers, what is
// being built, what is proposed and not yet applied. One goroutine runs its
// methods; none of them blocks. Time comes in as an argument, so that a
// simulation can drive it.
type sequencer struct {
	cfg   Config
	log   Log
	table *fsm.Table
	stats *counters
	slog  *slog.Logger
	// settled is called, from any goroutine, with the fate of an entry.
	settled func(*entry, fsm.Result, error)

	leading bool
	epoch   uint64
	clock   leaderClock
	mono    time.Duration // the latest monotonic reading
	stamped time.Duration // monotonic time of the latest stamp
	retryAt time.Duration // monotonic; nothing that we begin ourselves before it

	keys     map[string]*keyState
	waits    waitHeap
	ops      []fsm.Op // built, not yet proposed
	recs     []record // what each of ops is for
	expiring int      // expiries among ops
	flying   int      // entries of this epoch proposed and not settled
	grants   int      // grants built or proposed and not settled, this epoch
	sitting  []*waiter
	dirty    []*session
}

// record says what one operation of an entry is for.
type record struct {
	kind   fsm.Kind
	joined bool      // belongs in the same entry as the operation before it
	stray  bool      // a release or keep of a token that should not be the key's
	key    *keyState // nil for a tick
	wait   *waiter   // of a grant
	sess   *session  // of a release or keep that a client asked for
	owner  uint64    // its correlation number
}

// entry is one proposed log entry.
type entry struct {
	epoch  uint64
	sealed time.Duration // monotonic time of its stamp
	recs   []record
}

func newSequencer(cfg Config, table *fsm.Table, log Log, stats *counters, settled func(*entry, fsm.Result, error)) *sequencer {
	return &sequencer{
		cfg: cfg, log: log, table: table, stats: stats, slog: cfg.Logger, settled: settled,
		keys: make(map[string]*keyState),
	}
}

// look reads the clocks once for all that is decided until the next look.
func (q *sequencer) look(mono time.Duration) {
	q.mono = mono
	if !q.leading {
		return
	}
	if q.flying == 0 && q.table.Len() == 0 {
		q.clock.skip(mono)
	}
	q.clock.now(mono)
}

// finish proposes what can be proposed and lets the sessions write.
func (q *sequencer) finish() {
	if q.leading {
		q.endWaits()
		q.expire()
		q.tick()
		for len(q.ops) > 0 && q.flying < q.cfg.MaxEntriesInflight {
			q.propose()
		}
	} else {
		q.moveSitting()
	}
	for i, s := range q.dirty {
		s.dirty = false
		s.out.flush()
		q.dirty[i] = nil
	}
	q.dirty = q.dirty[:0]
	q.stats.waiters.Store(int64(len(q.waits)))
	q.stats.queue.Store(int64(len(q.ops)))
}

// full says that no more input should be taken for now.
func (q *sequencer) full() bool { return len(q.ops) >= 2*q.cfg.MaxQueue }

// nextWake is the monotonic time at which there is something to do without any
// input, and whether there is such a time.
func (q *sequencer) nextWake() (time.Duration, bool) {
	if !q.leading {
		return q.mono + sittingPoll, len(q.sitting) > 0
	}
	wake, ok := time.Duration(0), false
	earlier := func(t time.Duration) {
		if !ok || t < wake {
			wake, ok = t, true
		}
	}
	if len(q.waits) > 0 {
		earlier(q.waits[0].waitEnd)
	}
	if deadline, some := q.table.NextDeadline(); some {
		if q.flying == 0 {
			earlier(max(q.stamped+q.cfg.TickInterval, q.retryAt))
		}
		earlier(q.mono + lookInterval)
		// A deadline that has passed is either being seen to, and then the
		// settling of that entry wakes us, or put off until a known time.
		if at := max(q.clock.at(deadline), q.retryAt); at > q.mono {
			earlier(at)
		}
	}
	return wake, ok
}

// propose seals one entry and hands it to the log.
func (q *sequencer) propose() {
	n := min(len(q.ops), q.cfg.MaxBatchOps)
	for n < len(q.ops) && q.recs[n].joined {
		n++
	}
	for i := range q.recs[:n] {
		if q.recs[i].kind == fsm.KindExpire {
			q.expiring--
		}
	}
	e := &entry{epoch: q.epoch, sealed: q.mono, recs: append([]record(nil), q.recs[:n]...)}
	data, err := fsm.AppendEntry(nil, &fsm.Entry{Epoch: q.epoch, Stamp: q.clock.base, Ops: q.ops[:n]})
	q.ops = shift(q.ops, n)
	q.recs = shift(q.recs, n)
	q.flying++
	q.stamped = q.mono
	if err != nil {
		// Every operation was checked when it was read, so this is a bug; the
		// entry was not appended, and is answered as such.
		q.slog.Error("log entry could not be encoded", "err", err)
		go q.settled(e, fsm.Result{}, fsm.ErrNotExecuted)
		return
	}
	q.stats.entries.Add(1)
	q.stats.batched.Add(uint64(n))
	q.log.Propose(data, func(res fsm.Result, err error) { q.settled(e, res, err) })
}

// shift drops the first n elements and lets go of what they refer to.
func shift[T any](s []T, n int) []T {
	clear(s[:n])
	if n == len(s) {
		return s[:0]
	}
	return s[n:]
}

// add appends one operation to what will be proposed.
func (q *sequencer) add(op fsm.Op, r record) {
	r.kind = op.Kind
	if r.key != nil && !r.stray {
		r.key.inflight++
	}
	if op.Kind == fsm.KindExpire {
		q.expiring++
	}
	q.ops = append(q.ops, op)
	q.recs = append(q.recs, r)
}

// grant proposes the acquire w, which must not be queued.
func (q *sequencer) grant(w *waiter, joined bool) {
	w.key.holder = granting
	q.grants++
	q.add(fsm.Op{
		Kind: fsm.KindGrant, Key: w.key.key, Owner: w.owner, Lease: time.Duration(w.lease) * time.Second,
		Label: *w.sess.label.Load(), Addr: w.sess.addr,
	}, record{key: w.key, wait: w, joined: joined})
}

// grantHead proposes the first in the queue of a key that is, or is about to
// be, free. joined puts the grant into the entry that makes the key free.
func (q *sequencer) grantHead(k *keyState, joined bool) {
	w := k.head
	q.dequeue(w)
	q.grant(w, joined)
}

// state returns the key's state, making it from the table where there is none.
func (q *sequencer) state(key string) *keyState {
	k := q.keys[key]
	if k == nil {
		k = &keyState{key: key}
		if g, held := q.held(key); held {
			k.holder = g.Token
		}
		q.keys[key] = k
	}
	return k
}

// aim says what a release or keep of one exact grant is for. One that the
// prediction has no such grant for is a stray: it should change nothing, and
// does not count as the key being busy, or anybody could put off its expiry.
func (q *sequencer) aim(key string, token uint64, s *session, owner uint64) record {
	k := q.state(key)
	r := record{key: k, sess: s, owner: owner, stray: token != k.holder || token == 0 || token == granting}
	if k.inflight == 0 && k.n == 0 && r.stray {
		delete(q.keys, key)
	}
	return r
}

// held looks the key up in the table. A lease that has run out does not count.
func (q *sequencer) held(key string) (fsm.Grant, bool) {
	g, ok := q.table.Lookup(key)
	return g, ok && g.Deadline > q.clock.base
}

// rest drops the state of a key that the table alone can speak for, and sees
// to it that no key stays free while somebody waits for it.
func (q *sequencer) rest(k *keyState) {
	if k.inflight > 0 {
		return
	}
	k.holder = 0
	if g, held := q.held(k.key); held {
		k.holder = g.Token
	}
	switch {
	case k.n == 0:
		delete(q.keys, k.key)
	case k.holder == 0:
		q.grantHead(k, false)
	}
}
