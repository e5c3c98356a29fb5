package fsm

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// memSink is a raft.SnapshotSink in memory.
type memSink struct {
	bytes.Buffer
	closed, cancelled bool
}

func (s *memSink) ID() string    { return "mem" }
func (s *memSink) Close() error  { s.closed = true; return nil }
func (s *memSink) Cancel() error { s.cancelled = true; return nil }

func TestAdapter(t *testing.T) {
	var fatal error
	a := &Adapter{Table: NewTable(), Fatal: func(err error) { fatal = err }}
	takeover := encode(&Entry{Ops: []Op{{Kind: KindTakeover, Takeover: &Takeover{NodeID: "n1"}}}})
	out := a.ApplyBatch([]*raft.Log{
		{Index: 1, Type: raft.LogConfiguration, Data: []byte("not ours")},
		{Index: 2, Type: raft.LogCommand, Data: takeover},
	})
	if len(out) != 2 || out[0] != nil || out[1].(Result).Index != 2 || fatal != nil {
		t.Fatalf("%+v, fatal %v", out, fatal)
	}
	snap, err := a.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	sink := &memSink{}
	if err := snap.Persist(sink); err != nil || !sink.closed || sink.cancelled {
		t.Fatalf("%v %+v", err, sink)
	}
	snap.Release()
	after := &memSink{}
	if err := snap.Persist(after); err == nil || after.closed || !after.cancelled {
		t.Errorf("a view was written after its release: %v %+v", err, after)
	}
	b := &Adapter{Table: NewTable()}
	if err := b.Restore(io.NopCloser(&sink.Buffer)); err != nil || b.Table.Hash() != a.Table.Hash() {
		t.Fatalf("restore: %v", err)
	}

	// An entry of a newer format stops the node, and nothing after it is applied.
	newer := bytes.Clone(takeover)
	newer[0] = 2
	if res := a.Apply(&raft.Log{Index: 3, Data: newer}).(Result); !errors.Is(res.Err, ErrVersion) || !errors.Is(fatal, ErrVersion) {
		t.Fatalf("result %v, fatal %v", res.Err, fatal)
	}
	if res := a.Apply(&raft.Log{Index: 4, Data: takeover}).(Result); !errors.Is(res.Err, ErrVersion) || a.Table.Epoch() != 2 {
		t.Fatalf("an entry was applied over one that was not understood: %+v", res)
	}
	if !strings.Contains(fatal.Error(), "log index 4") || !strings.Contains(fatal.Error(), "newer holdfast") {
		t.Errorf("the message helps nobody: %v", fatal)
	}
}

// TestAdapterCorruptEntry: damage is told from a newer format, and neither
// changes the state.
func TestAdapterCorruptEntry(t *testing.T) {
	var fatal error
	a := &Adapter{Table: filled(t, 3), Fatal: func(err error) { fatal = err }}
	before := a.Table.Hash()
	for _, data := range [][]byte{nil, {entryFormat}, []byte("\x01 not an entry at all")} {
		fatal = nil
		res := a.Apply(&raft.Log{Index: 99, Data: data}).(Result)
		if !errors.Is(res.Err, ErrCorrupt) || !errors.Is(fatal, ErrCorrupt) || !strings.Contains(fatal.Error(), "damaged") {
			t.Errorf("%q: result %v, fatal %v", data, res.Err, fatal)
		}
		if res.Outcomes != nil || a.Table.Hash() != before {
			t.Errorf("%q changed the state", data)
		}
	}
}

// TestAdapterFullDisk: a snapshot that cannot be written is cancelled, never closed.
func TestAdapterFullDisk(t *testing.T) {
	a := &Adapter{Table: filled(t, 5000)}
	snap, err := a.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	sink := &fullSink{w: failingWriter{1000}}
	if err := snap.Persist(sink); !errors.Is(err, errFull) || sink.closed || !sink.cancelled {
		t.Errorf("%v %+v", err, sink)
	}
}

type fullSink struct {
	memSink
	w failingWriter
}

func (s *fullSink) Write(p []byte) (int, error) { return s.w.Write(p) }
