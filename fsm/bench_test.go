package fsm

import (
	"fmt"
	"io"
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

// BenchmarkMillionGrants reports what a million grants cost in memory, how long
// Freeze holds up Apply, and how long a snapshot takes to write and to load.
func BenchmarkMillionGrants(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := filled(b, 1_000_000)
	runtime.GC()
	runtime.ReadMemStats(&after)
	var freeze, persist time.Duration
	for b.Loop() {
		start := time.Now()
		f := table.Freeze()
		freeze = max(freeze, time.Since(start))
		start = time.Now()
		if err := f.Persist(io.Discard); err != nil {
			b.Fatal(err)
		}
		persist = time.Since(start)
		f.Release()
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
	b.ReportMetric(float64(freeze.Microseconds()), "freeze-max-µs")
	b.ReportMetric(float64(persist.Milliseconds()), "persist-ms")
}
