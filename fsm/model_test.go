package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// model is the lock table as one would write it without a thought for speed.
type model struct {
	clock  time.Duration
	epoch  uint64
	last   uint64
	leader Takeover
	id     [16]byte // the first one proposed
	grants map[string]Grant
}

func (m *model) apply(index uint64, e *Entry) Result {
	if len(e.Ops) == 1 && e.Ops[0].Kind == KindTakeover {
		to := e.Ops[0].Takeover
		m.epoch, m.leader, m.last = index, *to, max(m.last, to.TokenFloor)
		if m.id == ([16]byte{}) {
			m.id = to.ClusterID
		}
		return Result{Index: index, Clock: m.clock, Outcomes: []Outcome{{Code: TookOver}}}
	}
	if e.Epoch == 0 || e.Epoch != m.epoch {
		return Result{Index: index, Clock: m.clock, Stale: true}
	}
	m.clock = max(m.clock, e.Stamp)
	res := Result{Index: index, Clock: m.clock}
	for _, op := range e.Ops {
		res.Outcomes = append(res.Outcomes, m.execute(op))
	}
	return res
}

func (m *model) execute(op Op) Outcome {
	g, there := m.grants[op.Key]
	active := there && g.Deadline > m.clock
	switch op.Kind {
	case KindGrant:
		if active {
			return Outcome{Held, g.Token, g.Deadline}
		}
		m.last++
		m.grants[op.Key] = Grant{op.Key, m.last, op.Owner, op.Lease, m.clock + op.Lease, op.Label, op.Addr}
		return Outcome{Granted, m.last, m.clock + op.Lease}
	case KindRelease:
		if !active || g.Token != op.Token {
			return Outcome{Code: NotHeld}
		}
		delete(m.grants, op.Key)
		return Outcome{Code: Released}
	case KindKeep:
		if !active || g.Token != op.Token {
			return Outcome{Code: NotHeld}
		}
		g.Lease, g.Deadline = op.Lease, m.clock+op.Lease
		m.grants[op.Key] = g
		return Outcome{Kept, g.Token, g.Deadline}
	case KindExpire:
		if !there || active || g.Token != op.Token {
			return Outcome{Code: NotExpired}
		}
		delete(m.grants, op.Key)
		return Outcome{Code: Expired}
	}
	return Outcome{Code: Ticked}
}

// script makes up a log: operations that mostly make sense, leaders that come
// and go, and entries of leaders that have gone.
type script struct {
	rnd    *rand.Rand
	epoch  uint64
	old    uint64
	clock  time.Duration
	tokens map[string]uint64
	newest uint64
}

func (s *script) entry(index uint64) *Entry {
	if s.epoch == 0 || s.rnd.IntN(50) == 0 {
		s.old, s.epoch = s.epoch, index
		floor := uint64(0)
		if s.rnd.IntN(3) == 0 {
			floor = s.newest + s.rnd.Uint64N(1000)
		}
		return &Entry{Ops: []Op{{Kind: KindTakeover, Takeover: &Takeover{
			NodeID: fmt.Sprintf("n%d", s.rnd.IntN(5)), ClientAddr: "c", AdminAddr: "a", TokenFloor: floor, ClusterID: [16]byte{byte(index)}}}}}
	}
	e := &Entry{Epoch: s.epoch, Stamp: s.clock + time.Duration(s.rnd.Int64N(int64(2*time.Second)))}
	switch s.rnd.IntN(20) {
	case 0:
		e.Epoch = s.old
		e.Stamp += time.Hour
	case 1:
		e.Stamp -= min(e.Stamp, time.Second) // a clock that has fallen behind
	}
	for range s.rnd.IntN(4) + 1 {
		e.Ops = append(e.Ops, s.op())
	}
	return e
}

func (s *script) op() Op {
	op := Op{Kind: KindTick + Kind(s.rnd.IntN(5)), Key: fmt.Sprintf("k%d", s.rnd.IntN(30))}
	switch op.Kind {
	case KindTick:
		return Op{Kind: KindTick}
	case KindGrant:
		op.Owner, op.Label, op.Addr = s.rnd.Uint64(), fmt.Sprintf("l%d", s.rnd.IntN(3)), "addr"
	default:
		op.Token = s.tokens[op.Key]
		if s.rnd.IntN(10) == 0 {
			op.Token++
		}
	}
	if op.Kind == KindGrant || op.Kind == KindKeep {
		op.Lease = time.Duration(s.rnd.IntN(10)+1) * time.Second
	}
	return op
}

func (s *script) saw(e *Entry, res Result) {
	s.clock = res.Clock
	for i, o := range res.Outcomes {
		if o.Code == Granted {
			s.tokens[e.Ops[i].Key], s.newest = o.Token, o.Token
		}
	}
}

// TestThreeWaysToTheSameState: replaying the log, restoring a snapshot and
// replaying the rest, and a naive model agree at every entry.
func TestThreeWaysToTheSameState(t *testing.T) {
	entries := 3000
	if testing.Short() {
		entries = 300
	}
	for seed := range uint64(20) {
		s := &script{rnd: rand.New(rand.NewPCG(seed, 1)), tokens: map[string]uint64{}}
		replayed, restored := NewTable(), NewTable()
		m := &model{grants: map[string]Grant{}}
		highest := uint64(0)
		for index := uint64(1); index <= uint64(entries); index++ {
			e := s.entry(index)
			data := encode(e)
			want := m.apply(index, e)
			got := replayed.Apply(index, data)
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Fatalf("seed %d entry %d %+v:\n got %+v\nwant %+v", seed, index, e, got, want)
			}
			restored.Apply(index, data)
			s.saw(e, got)
			for _, o := range got.Outcomes {
				if o.Code == Granted {
					if o.Token <= highest {
						t.Fatalf("seed %d entry %d: token %d after %d", seed, index, o.Token, highest)
					}
					highest = o.Token
				}
			}
			if s.rnd.IntN(100) == 0 {
				restored = throughSnapshot(t, restored)
			}
		}
		compare(t, replayed, m)
		compare(t, restored, m)
		if a, b := replayed.Hash(), restored.Hash(); a != b {
			t.Fatalf("seed %d: hash %x by replay, %x through snapshots", seed, a, b)
		}
	}
}

func encode(e *Entry) []byte {
	b, err := AppendEntry(nil, e)
	if err != nil {
		panic(err)
	}
	return b
}

func throughSnapshot(t *testing.T, from *Table) *Table {
	t.Helper()
	var buf bytes.Buffer
	f := from.Freeze()
	defer f.Release()
	if err := f.Persist(&buf); err != nil {
		t.Fatal(err)
	}
	to := NewTable()
	to.Apply(1, encode(&Entry{Ops: []Op{{Kind: KindTakeover, Takeover: &Takeover{NodeID: "rubbish to be replaced"}}}}))
	if err := to.Restore(&buf); err != nil {
		t.Fatal(err)
	}
	return to
}

// compare checks every way of reading the table against the model.
func compare(t *testing.T, table *Table, m *model) {
	t.Helper()
	if table.Len() != len(m.grants) || table.Clock() != m.clock || table.Epoch() != m.epoch || table.LastToken() != m.last {
		t.Fatalf("table: %d grants, clock %s, epoch %d, token %d; model: %d, %s, %d, %d",
			table.Len(), table.Clock(), table.Epoch(), table.LastToken(), len(m.grants), m.clock, m.epoch, m.last)
	}
	if table.Leader() != m.leader || table.ClusterID() != m.id {
		t.Fatalf("table: leader %+v of cluster %x; model: %+v of %x", table.Leader(), table.ClusterID(), m.leader, m.id)
	}
	earliest := time.Duration(1 << 62)
	for key, want := range m.grants {
		if got, ok := table.Lookup(key); !ok || got != want {
			t.Fatalf("%s: %+v, want %+v", key, got, want)
		}
		earliest = min(earliest, want.Deadline)
	}
	if next, ok := table.NextDeadline(); ok != (len(m.grants) > 0) || ok && next != earliest {
		t.Fatalf("next deadline %s %v, want %s", next, ok, earliest)
	}
	for _, at := range []time.Duration{m.clock, m.clock + 3*time.Second, m.clock + time.Hour} {
		want := 0
		for _, g := range m.grants {
			if g.Deadline <= at {
				want++
			}
		}
		due := table.Due(at, 1000, nil)
		for _, d := range due {
			if g := m.grants[d.Key]; g.Token != d.Token || g.Deadline > at {
				t.Fatalf("%+v is not due at %s", d, at)
			}
		}
		if len(due) != want {
			t.Fatalf("%d due at %s, want %d", len(due), at, want)
		}
	}
}
