package fsm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// golden is one entry of each kind. testdata/entries.golden holds their bytes:
// logs outlive programs, so that file only ever grows.
var golden = []struct {
	name  string
	entry Entry
}{
	{"takeover", Entry{Ops: []Op{{Kind: KindTakeover, Takeover: &Takeover{"n1", "n1:7420", "n1:7422", 1 << 40, [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}}}}}},
	{"tick", Entry{Epoch: 7, Stamp: time.Second, Ops: []Op{{Kind: KindTick}}}},
	{"grant", Entry{Epoch: 7, Stamp: time.Second, Ops: []Op{{Kind: KindGrant, Key: "k\nü", Owner: 0x0a0b0c0d0e0f1011, Lease: 255 * time.Second, Label: "host/app/1", Addr: "127.0.0.1:5"}}}},
	{"release", Entry{Epoch: 7, Stamp: 2 * time.Second, Ops: []Op{{Kind: KindRelease, Key: "k", Token: 9}}}},
	{"keep", Entry{Epoch: 7, Stamp: 3 * time.Second, Ops: []Op{{Kind: KindKeep, Key: "k", Token: 9, Lease: time.Second}}}},
	{"expire", Entry{Epoch: 7, Stamp: 4 * time.Second, Ops: []Op{{Kind: KindExpire, Key: "k", Token: 9}}}},
	{"hand-over", Entry{Epoch: 1 << 33, Stamp: 5 * time.Hour, Ops: []Op{{Kind: KindRelease, Key: "k", Token: 9}, {Kind: KindGrant, Key: "k", Owner: 1, Lease: time.Second}}}},
}

func TestGoldenEntries(t *testing.T) {
	const file = "testdata/entries.golden"
	var all strings.Builder
	for _, g := range golden {
		all.WriteString(g.name + " " + hex.EncodeToString(encode(&g.entry)) + "\n")
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != all.String() {
		t.Errorf("the encoding has changed:\n%swant\n%s", all.String(), want)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(want)), "\n") {
		_, text, _ := strings.Cut(line, " ")
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		e, err := DecodeEntry(data)
		if err != nil || !reflect.DeepEqual(*e, golden[i].entry) {
			t.Errorf("%s: %+v %v", golden[i].name, e, err)
		}
		for n := range data { // no prefix of an entry is an entry
			if _, err := DecodeEntry(data[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s cut at %d: %v", golden[i].name, n, err)
			}
		}
	}
}

func TestInvalidEntriesAreNotEncoded(t *testing.T) {
	long := strings.Repeat("x", MaxTextLen+1)
	for name, op := range map[string]Op{
		"no key":         {Kind: KindRelease, Token: 1},
		"long key":       {Kind: KindRelease, Key: long[:MaxKeyLen+1], Token: 1},
		"lease 0":        {Kind: KindGrant, Key: "k"},
		"lease 256":      {Kind: KindGrant, Key: "k", Lease: 256 * time.Second},
		"half seconds":   {Kind: KindKeep, Key: "k", Lease: 1500 * time.Millisecond},
		"long label":     {Kind: KindGrant, Key: "k", Lease: time.Second, Label: long},
		"unknown kind":   {Kind: 99, Key: "k"},
		"empty takeover": {Kind: KindTakeover},
	} {
		before := []byte("before")
		b, err := AppendEntry(before, &Entry{Ops: []Op{op}})
		if err == nil || !bytes.Equal(b, before) {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	for _, stamp := range []time.Duration{-1, maxStamp + 1, 1<<63 - 1} {
		e := Entry{Stamp: stamp, Ops: []Op{{Kind: KindTick}}}
		if b, err := AppendEntry([]byte("before"), &e); err == nil || string(b) != "before" {
			t.Errorf("stamp %d: %q %v", stamp, b, err)
		}
		raw := encode(&Entry{Ops: e.Ops})
		binary.BigEndian.PutUint64(raw[9:], uint64(stamp))
		if _, err := DecodeEntry(raw); !errors.Is(err, ErrCorrupt) {
			t.Errorf("stamp %d decoded: %v", stamp, err)
		}
	}
	two := Op{Kind: KindTakeover, Takeover: &Takeover{}}
	if _, err := AppendEntry(nil, &Entry{Ops: []Op{two, two}}); err == nil {
		t.Error("two takeovers in one entry")
	}
	if _, err := AppendEntry(nil, &Entry{Ops: []Op{two, {Kind: KindTick}}}); err == nil {
		t.Error("a takeover and a tick in one entry")
	}
}

// TestDecodeAllocatesByContent: a count or a length that the input does not
// have behind it must not cost memory.
func TestDecodeAllocatesByContent(t *testing.T) {
	head := encode(&Entry{Epoch: 1, Ops: []Op{{Kind: KindTick}}})[:17]
	for name, tail := range map[string][]byte{
		"operations":                  binary.AppendUvarint(nil, 1<<40),
		"more operations than bytes":  append(binary.AppendUvarint(nil, 1<<20), make([]byte, 1<<10)...),
		"as many operations as bytes": append(binary.AppendUvarint(nil, 1<<16), make([]byte, 1<<16)...),
		"key":                         append([]byte{1, byte(KindRelease)}, binary.AppendUvarint(nil, 1<<60)...),
		"longest number":              append([]byte{1, byte(KindRelease)}, bytes.Repeat([]byte{0xff}, 12)...),
	} {
		data := append(bytes.Clone(head), tail...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeEntry(data)
		runtime.ReadMemStats(&after)
		got := after.TotalAlloc - before.TotalAlloc
		if limit := uint64(20*len(data) + 4096); err == nil || got > limit {
			t.Errorf("%s: %v, %d bytes allocated for %d of input", name, err, got, len(data))
		}
	}
}

// TestGoldenSnapshot pins the bytes of a snapshot, as TestGoldenEntries does
// for entries. One grant, because the order of grants is free.
func TestGoldenSnapshot(t *testing.T) {
	const file = "testdata/snapshot.golden"
	table := filled(t, 1)
	got := hex.EncodeToString(persisted(t, table)) + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("the encoding has changed:\n%swant\n%s", got, want)
	}
	data, err := hex.DecodeString(strings.TrimSpace(string(want)))
	if err != nil {
		t.Fatal(err)
	}
	restored := NewTable()
	if err := restored.Restore(bytes.NewReader(data)); err != nil || restored.Hash() != table.Hash() || restored.Leader() != table.Leader() {
		t.Errorf("restored %+v, %v", restored.Leader(), err)
	}
}

func TestUnknownVersions(t *testing.T) {
	e := encode(&golden[1].entry)
	e[0] = 9
	if _, err := DecodeEntry(e); !errors.Is(err, ErrVersion) {
		t.Errorf("entry of format 9: %v", err)
	}
	e[0] = entryFormat
	e[len(e)-1] = 200 // the kind of the last operation
	if _, err := DecodeEntry(e); !errors.Is(err, ErrVersion) {
		t.Errorf("operation of kind 200: %v", err)
	}
}
