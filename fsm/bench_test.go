package fsm

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// BenchmarkApply executes entries of 100 operations: 50 releases, each with the
// grant that follows it.
func BenchmarkApply(b *testing.B) {
	table := filled(b, 10_000)
	tokens := make([]uint64, 50)
	entry := func() []byte {
		e := Entry{Epoch: 1, Stamp: time.Second}
		for i := range tokens {
			key := fmt.Sprintf("bench-%d", i)
			e.Ops = append(e.Ops, Op{Kind: KindRelease, Key: key, Token: tokens[i]}, Op{Kind: KindGrant, Key: key, Owner: 1, Lease: 30 * time.Second, Label: "host/app/1", Addr: "10.0.0.1:1"})
		}
		return encode(&e)
	}
	b.ReportAllocs()
	index := uint64(1 << 20)
	for b.Loop() {
		b.StopTimer()
		data := entry()
		index++
		b.StartTimer()
		res := table.Apply(index, data)
		b.StopTimer()
		for i := range tokens {
			tokens[i] = res.Outcomes[2*i+1].Token
		}
		b.StartTimer()
	}
}

// TestApplyAllocations: a grant costs two allocations (itself and its key), a
// keep one, a release none; an entry costs a handful whatever is in it.
func TestApplyAllocations(t *testing.T) {
	const n = 100
	limits := []struct {
		kind Kind
		code OutcomeCode
		max  float64
	}{{KindGrant, Granted, 2.2}, {KindKeep, Kept, 1.2}, {KindRelease, Released, 0.2}}
	table := filled(t, 10_000)
	index := uint64(1 << 20)
	for round := range 3 { // the first makes room in maps and slices
		first := table.LastToken() + 1
		for _, l := range limits {
			e := Entry{Epoch: 1, Stamp: time.Second}
			for i := range uint64(n) {
				e.Ops = append(e.Ops, Op{Kind: l.kind, Key: fmt.Sprintf("alloc-%d", i), Token: first + i, Lease: time.Minute, Label: "host/app/1", Addr: "10.0.0.1:1"})
			}
			data := encode(&e)
			index++
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			res := table.Apply(index, data)
			runtime.ReadMemStats(&after)
			for i, o := range res.Outcomes {
				if o.Code != l.code {
					t.Fatalf("operation %d of kind %d: outcome %d", i, l.kind, o.Code)
				}
			}
			if got := float64(after.Mallocs-before.Mallocs) / n; round > 0 && got > l.max {
				t.Errorf("an operation of kind %d costs %.2f allocations, want at most %.1f", l.kind, got, l.max)
			}
		}
	}
}

// BenchmarkMillionGrants reports what a million grants cost in memory, how long
// Freeze holds up Apply, what the first entry of 100 operations after it costs
// (it copies 100 shards), and how long a snapshot takes to write and to load.
func BenchmarkMillionGrants(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := filled(b, 1_000_000)
	runtime.GC()
	runtime.ReadMemStats(&after)
	ops := make([]Op, 100)
	for i := range ops {
		key := fmt.Sprintf("key-%07d", i*9973)
		g, _ := table.Lookup(key)
		ops[i] = Op{Kind: KindKeep, Key: key, Token: g.Token, Lease: time.Minute}
	}
	touch := encode(&Entry{Epoch: 1, Ops: ops})
	var freeze, first, persist, restore time.Duration
	for b.Loop() {
		start := time.Now()
		f := table.Freeze()
		freeze = max(freeze, time.Since(start))
		start = time.Now()
		if res := table.Apply(1<<30, touch); len(res.Outcomes) != 100 {
			b.Fatalf("%+v", res)
		}
		first = max(first, time.Since(start))
		var snap bytes.Buffer
		start = time.Now()
		if err := f.Persist(&snap); err != nil {
			b.Fatal(err)
		}
		persist = time.Since(start)
		f.Release()
		start = time.Now()
		if err := NewTable().Restore(&snap); err != nil {
			b.Fatal(err)
		}
		restore = time.Since(start)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
	b.ReportMetric(float64(freeze.Microseconds()), "freeze-max-µs")
	b.ReportMetric(float64(first.Microseconds()), "first-apply-max-µs")
	b.ReportMetric(float64(persist.Milliseconds()), "persist-ms")
	b.ReportMetric(float64(restore.Milliseconds()), "restore-ms")
}
