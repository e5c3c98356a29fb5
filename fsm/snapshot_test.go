package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// filled returns a table with n grants.
func filled(tb testing.TB, n int) *Table {
	tb.Helper()
	table := NewTable()
	table.Apply(1, encode(&Entry{Ops: []Op{{Kind: KindTakeover, Takeover: &Takeover{NodeID: "n1", ClientAddr: "n1:7420", AdminAddr: "n1:7422", TokenFloor: 77, ClusterID: [16]byte{1, 2, 3}}}}}))
	var ops []Op
	for i := range n {
		ops = append(ops, Op{Kind: KindGrant, Key: fmt.Sprintf("key-%07d", i), Owner: uint64(i), Lease: time.Duration(i%255+1) * time.Second, Label: "host/app/1", Addr: "10.0.0.1:55555"})
		if len(ops) == 1000 || i == n-1 {
			if res := table.Apply(uint64(2+i), encode(&Entry{Epoch: 1, Stamp: time.Second, Ops: ops})); res.Err != nil || res.Stale {
				tb.Fatalf("%+v", res)
			}
			ops = ops[:0]
		}
	}
	return table
}

func persisted(tb testing.TB, table *Table) []byte {
	tb.Helper()
	var buf bytes.Buffer
	f := table.Freeze()
	defer f.Release()
	if err := f.Persist(&buf); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func TestDamagedSnapshotIsRefusedAndTheStateUntouched(t *testing.T) {
	good := persisted(t, filled(t, 20))
	table := filled(t, 7)
	before := table.Hash()
	refused := func(what string, b []byte) {
		t.Helper()
		err := table.Restore(bytes.NewReader(b))
		if !errors.Is(err, ErrSnapshotCorrupt) && !errors.Is(err, ErrSnapshotVersion) {
			t.Fatalf("%s: %v", what, err)
		}
		if table.Hash() != before {
			t.Fatalf("%s changed the state", what)
		}
	}
	for n := range good {
		refused(fmt.Sprintf("cut at %d", n), good[:n])
		flipped := bytes.Clone(good)
		flipped[n] ^= 0x40
		refused(fmt.Sprintf("byte %d flipped", n), flipped)
	}
	refused("longer", append(bytes.Clone(good), 0))
	newer := bytes.Clone(good)
	newer[len(snapshotMagic)-1] = 2
	if err := table.Restore(bytes.NewReader(newer)); !errors.Is(err, ErrSnapshotVersion) {
		t.Errorf("newer version: %v", err)
	}
	if err := table.Restore(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	if want := filled(t, 20); table.Hash() != want.Hash() {
		t.Error("restored another state")
	}
}

func TestFrozenViewStandsStillWhileTheTableGoesOn(t *testing.T) {
	table := filled(t, 5000)
	want := persisted(t, table)
	f := table.Freeze()
	defer f.Release()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 5000 {
			key := fmt.Sprintf("key-%07d", i)
			g, _ := table.Lookup(key)
			ops := []Op{{Kind: KindKeep, Key: key, Token: g.Token, Lease: 100 * time.Second}}
			if i%2 == 0 {
				ops = append(ops, Op{Kind: KindRelease, Key: key, Token: g.Token})
			}
			table.Apply(uint64(10_000+i), encode(&Entry{Epoch: 1, Stamp: time.Second, Ops: ops}))
		}
	})
	var got bytes.Buffer
	for range 5 {
		got.Reset()
		if err := f.Persist(&got); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if got.Len() != len(want) { // the order of grants is free, their bytes are not
		t.Errorf("%d bytes, want %d", got.Len(), len(want))
	}
	restored := NewTable()
	if err := restored.Restore(&got); err != nil {
		t.Fatal(err)
	}
	if f.Hash() != restored.Hash() || table.Len() != 2500 {
		t.Errorf("the view changed; %d grants in the table", table.Len())
	}
}

// failingWriter fails after n bytes.
type failingWriter struct{ n int }

var errFull = errors.New("disk full")

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.n -= len(p); w.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestPersistReportsTheWritersError(t *testing.T) {
	f := filled(t, 5000).Freeze()
	defer f.Release()
	for _, n := range []int{0, 10, 70_000, 200_000} {
		if err := f.Persist(&failingWriter{n}); !errors.Is(err, errFull) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}
