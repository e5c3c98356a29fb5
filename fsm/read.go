package fsm

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Lookup returns the grant of a key as it is in the table. Its deadline may
// have passed: compare it with the clock that counts for the caller.
func (t *Table) Lookup(key string) (Grant, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if g := t.state.shards[shardOf(key)].get(key); g != nil {
		return g.Grant, true
	}
	return Grant{}, false
}

// Len is the number of grants in the table, run out or not.
func (t *Table) Len() int { t.mu.RLock(); defer t.mu.RUnlock(); return t.state.grants }

// Clock is the cluster clock.
func (t *Table) Clock() time.Duration { t.mu.RLock(); defer t.mu.RUnlock(); return t.state.clock }

// Epoch is the log index of the latest Takeover; 0 before the first.
func (t *Table) Epoch() uint64 { t.mu.RLock(); defer t.mu.RUnlock(); return t.state.epoch }

// AppliedIndex is the log index of the latest entry applied.
func (t *Table) AppliedIndex() uint64 { t.mu.RLock(); defer t.mu.RUnlock(); return t.state.applied }

// LastToken is the newest token granted, or the floor that the next is above.
func (t *Table) LastToken() uint64 { t.mu.RLock(); defer t.mu.RUnlock(); return t.state.lastToken }

// Leader is the latest Takeover.
func (t *Table) Leader() Takeover { t.mu.RLock(); defer t.mu.RUnlock(); return t.state.leader }

// ClusterID is the cluster's id; zero before the first Takeover.
func (t *Table) ClusterID() [16]byte { t.mu.RLock(); defer t.mu.RUnlock(); return t.state.clusterID }

// NextDeadline is the earliest deadline of all grants; false with none.
func (t *Table) NextDeadline() (time.Duration, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].Deadline, true
}

// Due names one exact grant whose lease has run out.
type Due struct {
	Key   string
	Token uint64
}

// Due returns up to limit grants whose deadline is not after now, in no
// particular order, leaving out the keys for which skip says true. skip runs
// under the table's read lock and must not call the table.
func (t *Table) Due(now time.Duration, limit int, skip func(key string) bool) []Due {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var due []Due
	t.heap.due(0, int64(now), func(g *held) bool {
		if len(due) >= limit {
			return false
		}
		if skip == nil || !skip(g.Key) {
			due = append(due, Due{g.Key, g.Token})
		}
		return true
	})
	return due
}

// Hash is a digest of the whole replicated state. It does not depend on the
// order in which the state came about.
func (t *Table) Hash() uint64 {
	f := t.Freeze()
	defer f.Release()
	return f.Hash()
}

// Hash is the digest of the frozen state.
func (f *Frozen) Hash() uint64 {
	s := &f.state
	var sum uint64
	buf := make([]byte, 0, 1024)
	f.Grants(func(g Grant) bool {
		h := fnv.New64a()
		buf = appendGrant(buf[:0], &g)
		_, _ = h.Write(buf)
		sum += mix(h.Sum64()) // a sum: grants have no order
		return true
	})
	h := fnv.New64a()
	buf = appendHeader(buf[:0], s)
	buf = binary.BigEndian.AppendUint64(buf, sum)
	_, _ = h.Write(buf)
	return h.Sum64()
}

// mix spreads a hash over all bits before it is summed (SplitMix64's finaliser).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
