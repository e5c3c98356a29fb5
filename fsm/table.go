// Package fsm is the replicated state: who holds which key, until when on the
// cluster clock, and the token counter. It is deterministic and does no I/O;
// adapter.go fits it to Raft. DESIGN.md has the rules and invariants.
package fsm

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Grant is one held key. It never changes once it is in the table: a renewal
// puts a new Grant in its place.
type Grant struct {
	Key         string
	Token       uint64 // exact authority and fencing token; never 0
	Owner       uint64 // the correlation number of the acquire that got it
	Lease       time.Duration
	Deadline    time.Duration // on the cluster clock
	Label, Addr string        // of the holder, for operators
}

// held is a grant in the table with its place in the deadline heap. Only the
// heap writes pos, under the table's lock; a frozen view never reads it.
type held struct {
	Grant
	pos int
}

// OutcomeCode says what one operation did.
type OutcomeCode uint8

// The outcomes.
const (
	Granted    OutcomeCode = iota + 1
	Held                   // a grant was refused: Token and Deadline are the holder's
	Released               // exactly this grant ended
	NotHeld                // a release or keep of a token that is not the key's active grant
	Kept                   // the lease began anew
	Expired                // the lease had run out; the grant ended
	NotExpired             // not this grant any more, or its lease goes on
	Ticked
	TookOver
)

// Outcome is the result of one operation.
type Outcome struct {
	Code     OutcomeCode
	Token    uint64        // Granted: the new token; Held: the holder's
	Deadline time.Duration // Granted, Kept, Held
}

// Result is the result of one entry.
type Result struct {
	Index    uint64
	Clock    time.Duration // the cluster clock after the entry
	Stale    bool          // of another epoch: nothing was executed
	Outcomes []Outcome     // one per operation, unless Stale or Err
	Err      error         // not understood: the node must stop
}

const (
	// shardBits: 60 grants a shard at a million, so that an entry of 100
	// operations right after a freeze copies 6,000 grants at most.
	shardBits  = 14
	shardCount = 1 << shardBits
	// maxTokenFloor keeps a leader with an absurd wall clock from using up the
	// tokens that are exact in a JSON number.
	maxTokenFloor = 1<<53 - 1<<40
)

// shard is a part of the table. A shard whose generation is older than the
// table's is shared with a frozen view and copied before its first change. A nil
// shard is empty.
type shard struct {
	gen    uint64
	grants map[string]*held
}

// Table is the replicated state. Apply and Restore are called from one
// goroutine; every other method is safe from any.
type Table struct {
	entry Entry // the one being applied; of the goroutine that calls Apply

	mu    sync.RWMutex
	stuck error // an entry was not understood: nothing after it is applied
	state state
	heap  deadlineHeap
	texts map[string]string // interned labels and addresses
}

// state is what a snapshot holds.
type state struct {
	shards    []*shard
	gen       uint64
	grants    int
	clock     time.Duration
	epoch     uint64
	applied   uint64
	lastToken uint64
	leader    Takeover
	clusterID [16]byte
}

// NewTable returns an empty table: clock zero, no leader, no cluster id.
func NewTable() *Table {
	return &Table{state: state{shards: make([]*shard, shardCount)}, texts: make(map[string]string)}
}

// shardOf is FNV-1a, folded.
func shardOf(key string) uint32 {
	h := uint32(2166136261)
	for i := 0; i < len(key); i++ {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return (h ^ h>>shardBits) & (shardCount - 1)
}

// Apply executes one encoded entry. An entry of another epoch than the current
// one changes nothing (Result.Stale). One that cannot be understood changes
// nothing either and sets Result.Err, for itself and for all that come after
// it: an entry is never skipped.
func (t *Table) Apply(index uint64, entry []byte) Result {
	e := &t.entry
	err := e.decode(entry)
	defer e.forget()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stuck == nil && err != nil {
		t.stuck = fmt.Errorf("log entry %d: %w", index, err)
	}
	if t.stuck != nil {
		return Result{Index: index, Err: t.stuck}
	}
	t.state.applied = index
	takeover := len(e.Ops) == 1 && e.Ops[0].Kind == KindTakeover
	if !takeover && (e.Epoch != t.state.epoch || e.Epoch == 0) { // 0: nobody has led yet
		return Result{Index: index, Clock: t.state.clock, Stale: true}
	}
	if takeover {
		t.takeOver(index, e.Ops[0].Takeover)
	} else {
		t.state.clock = max(t.state.clock, e.Stamp)
	}
	res := Result{Index: index, Clock: t.state.clock, Outcomes: make([]Outcome, len(e.Ops))}
	for i := range e.Ops {
		res.Outcomes[i] = t.execute(&e.Ops[i])
	}
	return res
}

// takeOver begins an epoch. The clock does not move: the new leader counts on
// from what this Apply returns.
func (t *Table) takeOver(index uint64, to *Takeover) {
	s := &t.state
	s.epoch = index
	if to.TokenFloor <= maxTokenFloor {
		s.lastToken = max(s.lastToken, to.TokenFloor)
	}
	if s.clusterID == ([16]byte{}) {
		s.clusterID = to.ClusterID
	}
	s.leader = *to
}

func (t *Table) execute(op *Op) Outcome {
	s := &t.state
	switch op.Kind {
	case KindTakeover:
		return Outcome{Code: TookOver}
	case KindTick:
		return Outcome{Code: Ticked}
	}
	sh := shardOf(op.Key)
	old := s.shards[sh].get(op.Key)
	active := old != nil && old.Deadline > s.clock
	switch op.Kind {
	case KindGrant:
		if active {
			return Outcome{Code: Held, Token: old.Token, Deadline: old.Deadline}
		}
		s.lastToken++
		g := &held{Grant: Grant{Key: keyText(old, op.Key), Token: s.lastToken, Owner: op.Owner, Lease: op.Lease,
			Deadline: s.clock + op.Lease, Label: t.intern(op.Label), Addr: t.intern(op.Addr)}}
		t.put(sh, old, g)
		return Outcome{Code: Granted, Token: g.Token, Deadline: g.Deadline}
	case KindKeep:
		if !active || old.Token != op.Token {
			return Outcome{Code: NotHeld}
		}
		g := &held{Grant: old.Grant}
		g.Lease, g.Deadline = op.Lease, s.clock+op.Lease
		t.put(sh, old, g)
		return Outcome{Code: Kept, Token: g.Token, Deadline: g.Deadline}
	case KindRelease:
		if !active || old.Token != op.Token {
			return Outcome{Code: NotHeld}
		}
		t.remove(sh, old)
		return Outcome{Code: Released}
	case KindExpire:
		if old == nil || active || old.Token != op.Token {
			return Outcome{Code: NotExpired}
		}
		t.remove(sh, old)
		return Outcome{Code: Expired}
	}
	panic("fsm: an operation passed validation and has no meaning")
}

func (sh *shard) get(key string) *held {
	if sh == nil {
		return nil
	}
	return sh.grants[key]
}

// own returns the shard for changing it.
func (t *Table) own(i uint32) *shard {
	sh := t.state.shards[i]
	if sh != nil && sh.gen == t.state.gen {
		return sh
	}
	mine := &shard{gen: t.state.gen}
	if sh == nil {
		mine.grants = make(map[string]*held)
	} else {
		mine.grants = make(map[string]*held, len(sh.grants)+1)
		for k, g := range sh.grants {
			mine.grants[k] = g
		}
	}
	t.state.shards[i] = mine
	return mine
}

func (t *Table) put(i uint32, old, g *held) {
	sh := t.own(i)
	if old != nil {
		t.heap.replace(old, g)
	} else {
		t.state.grants++
		t.heap.push(g)
	}
	sh.grants[g.Key] = g
}

func (t *Table) remove(i uint32, g *held) {
	delete(t.own(i).grants, g.Key)
	t.heap.remove(g)
	t.state.grants--
}

// intern keeps one copy of each holder text. The map is dropped when it grows
// large, because labels of clients long gone would stay in it for ever.
func (t *Table) intern(s string) string {
	if s == "" {
		return ""
	}
	if have, ok := t.texts[s]; ok {
		return have
	}
	if len(t.texts) >= 1<<16 {
		clear(t.texts)
	}
	s = strings.Clone(s)
	t.texts[s] = s
	return s
}

// keyText is the key's own copy of its text: what is in the table must not
// keep a whole entry in memory.
func keyText(old *held, key string) string {
	if old != nil {
		return old.Key
	}
	return strings.Clone(key)
}

// forget empties the entry and keeps its room for the next, unless it is large.
func (e *Entry) forget() {
	if cap(e.Ops) > 4096 {
		e.Ops = nil
	}
	clear(e.Ops)
}
