package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestDueHonoursLimitAndSkip: never more than limit, never a skipped key, and a
// skipped key hides no other.
func TestDueHonoursLimitAndSkip(t *testing.T) {
	table := filled(t, 1000)
	const now = 101 * time.Second // the first 100 leases of each 255 have run out
	want := map[string]bool{}
	for i := range 1000 {
		if i%255 < 100 {
			want[fmt.Sprintf("key-%07d", i)] = true
		}
	}
	if got := table.Due(now, 1<<20, nil); len(got) != len(want) {
		t.Fatalf("%d due, want %d", len(got), len(want))
	}
	if got := table.Due(now, 0, nil); len(got) != 0 {
		t.Errorf("limit 0: %v", got)
	}
	// As the expirer works: a few at a time, skipping what is under way.
	under := map[string]bool{}
	for {
		got := table.Due(now, 7, func(key string) bool { return under[key] })
		if len(got) > 7 {
			t.Fatalf("%d for a limit of 7", len(got))
		}
		for _, d := range got {
			if !want[d.Key] || under[d.Key] {
				t.Fatalf("%s is not due or was skipped", d.Key)
			}
			under[d.Key] = true
		}
		if len(got) == 0 {
			break
		}
	}
	if len(under) != len(want) {
		t.Errorf("found %d of %d", len(under), len(want))
	}
}

// TestHeapAgainstSorting: after any run of changes the heap's first is the
// earliest, and every grant knows its place.
func TestHeapAgainstSorting(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		var h deadlineHeap
		var all []*held
		for range 400 {
			fresh := &held{Grant: Grant{Deadline: time.Duration(rnd.IntN(50))}}
			switch i := 0; {
			case len(all) == 0 || rnd.IntN(5) < 2:
				h.push(fresh)
				all = append(all, fresh)
			case rnd.IntN(2) == 0:
				i = rnd.IntN(len(all))
				h.remove(all[i])
				all = slices.Delete(all, i, i+1)
			default:
				i = rnd.IntN(len(all))
				h.replace(all[i], fresh)
				all[i] = fresh
			}
			if len(h) != len(all) {
				t.Fatalf("seed %d: %d in the heap, want %d", seed, len(h), len(all))
			}
			for i, g := range h {
				if g.pos != i || i > 0 && h.less(i, (i-1)/4) {
					t.Fatalf("seed %d: place %d is out of order", seed, i)
				}
			}
		}
	}
}

// TestReadersBesideApply is for the race detector: every way of reading runs
// beside Apply, freezes and a restore.
func TestReadersBesideApply(t *testing.T) {
	table := filled(t, 500)
	snap := persisted(t, table)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, read := range []func(){
		func() { table.Lookup("key-0000001"); table.Len(); table.Clock(); table.Epoch() },
		func() {
			table.AppliedIndex()
			table.LastToken()
			table.Leader()
			table.ClusterID()
			table.NextDeadline()
		},
		func() { table.Due(table.Clock(), 10, func(key string) bool { return key < "key-0000100" }) },
		func() {
			f := table.Freeze()
			defer f.Release()
			n := 0
			f.Grants(func(Grant) bool { n++; return true })
			if n != f.Len() || f.Hash() == 0 || f.Index() == 0 || f.Epoch() == 0 {
				t.Errorf("a view of %d grants shows %d", f.Len(), n)
			}
		},
	} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					read()
				}
			}
		})
	}
	for i := range 2000 {
		key := fmt.Sprintf("key-%07d", i%700)
		g, _ := table.Lookup(key)
		table.Apply(uint64(1000+i), encode(&Entry{Epoch: 1, Stamp: time.Duration(i) * 10 * time.Millisecond, Ops: []Op{
			{Kind: KindKeep, Key: key, Token: g.Token, Lease: time.Second},
			{Kind: KindExpire, Key: key, Token: g.Token},
			{Kind: KindGrant, Key: key, Lease: 2 * time.Second, Label: key, Addr: "a"},
		}}))
		if i == 1000 {
			if err := table.Restore(bytes.NewReader(snap)); err != nil {
				t.Error(err)
			}
		}
	}
	close(stop)
	wg.Wait()
}
