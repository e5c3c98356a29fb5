package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestTableKeepsNoEntryInMemory: a small grant out of a large entry must not
// hold on to that entry's bytes.
func TestTableKeepsNoEntryInMemory(t *testing.T) {
	table := filled(t, 1)
	heap := func() uint64 {
		var ms runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&ms)
		return ms.HeapAlloc
	}
	before := heap()
	long := strings.Repeat("x", MaxKeyLen-10)
	for i := range 200 {
		e := Entry{Epoch: 1, Ops: []Op{{Kind: KindGrant, Key: fmt.Sprint("small", i), Lease: time.Second, Label: fmt.Sprint("l", i), Addr: fmt.Sprint("a", i)}}}
		for j := range 200 {
			e.Ops = append(e.Ops, Op{Kind: KindRelease, Key: fmt.Sprint(long, j), Token: 1})
		}
		table.Apply(uint64(i+10), encode(&e))
	}
	for i, op := range table.entry.Ops[:cap(table.entry.Ops)] {
		if op != (Op{}) {
			t.Fatalf("operation %d of the last entry is still kept", i)
		}
	}
	if grown := int64(heap() - before); grown > 4<<20 { // the entries were 20 MB
		t.Errorf("%d grants keep %d bytes", table.Len(), grown)
	}
	runtime.KeepAlive(table)
}

// TestImpossibleSnapshotIsRefused: a good checksum does not make a table of
// what no table can hold.
func TestImpossibleSnapshotIsRefused(t *testing.T) {
	good := Grant{Key: "k", Token: 5, Owner: 1, Lease: 10 * time.Second, Deadline: 12 * time.Second}
	header := state{applied: 9, epoch: 3, clock: 4 * time.Second, lastToken: 5, grants: 1}
	restore := func(s state, grants ...Grant) error {
		record := func(b, body []byte) []byte {
			return append(binary.BigEndian.AppendUint16(b, uint16(len(body))), body...)
		}
		b := record([]byte(snapshotMagic), appendHeader(nil, &s))
		for i := range grants {
			b = record(b, appendGrant(nil, &grants[i]))
		}
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint64(b, crc64.Checksum(b, crcTable))
		return NewTable().Restore(bytes.NewReader(b))
	}
	if err := restore(header, good); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	with := func(change func(*Grant)) Grant { g := good; change(&g); return g }
	for name, g := range map[string]Grant{
		"no key":             with(func(g *Grant) { g.Key = "" }),
		"long key":           with(func(g *Grant) { g.Key = strings.Repeat("k", MaxKeyLen+1) }),
		"token 0":            with(func(g *Grant) { g.Token = 0 }),
		"token not given":    with(func(g *Grant) { g.Token = 6 }),
		"no lease":           with(func(g *Grant) { g.Lease = 0 }),
		"deadline too late":  with(func(g *Grant) { g.Deadline = 14*time.Second + 1 }),
		"deadline too early": with(func(g *Grant) { g.Deadline = 10*time.Second - 1 }),
		"negative deadline":  with(func(g *Grant) { g.Deadline = -1 }),
	} {
		if err := restore(header, g); !errors.Is(err, ErrSnapshotCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	two := header
	two.grants = 2
	if err := restore(two, good, good); !errors.Is(err, ErrSnapshotCorrupt) {
		t.Errorf("one key twice: %v", err)
	}
	if err := restore(two, good); !errors.Is(err, ErrSnapshotCorrupt) {
		t.Errorf("a grant fewer than the header says: %v", err)
	}
	negative := header
	negative.clock = -1
	if err := restore(negative, good); !errors.Is(err, ErrSnapshotCorrupt) {
		t.Errorf("a negative clock: %v", err)
	}
}
