package fsm

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// Adapter fits a Table to Raft. The response of every log entry is a Result.
type Adapter struct {
	Table *Table
	// Fatal is told, from Raft's goroutine, of an entry that this program
	// cannot execute. The process must end: going on would skip the entry.
	Fatal func(error)
}

var (
	_ raft.BatchingFSM = (*Adapter)(nil)
	_ raft.FSMSnapshot = (*frozenSnapshot)(nil)
)

// Apply executes one log entry.
func (a *Adapter) Apply(l *raft.Log) any {
	res := a.Table.Apply(l.Index, l.Data)
	if res.Err != nil && a.Fatal != nil {
		a.Fatal(fmt.Errorf("log index %d cannot be executed: %w; %s", l.Index, res.Err, advice(res.Err)))
	}
	return res
}

// advice says what an operator can do about an entry that was not understood.
func advice(err error) string {
	if errors.Is(err, ErrVersion) {
		return "the log was written by a newer holdfast: start that version on this node"
	}
	return "the log on this node is damaged: replace the node, empty, from the others"
}

// ApplyBatch executes a run of log entries. Configuration entries have no
// meaning here.
func (a *Adapter) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			out[i] = a.Apply(l)
		}
	}
	return out
}

// Snapshot freezes the table; writing happens later and beside Apply.
func (a *Adapter) Snapshot() (raft.FSMSnapshot, error) {
	return &frozenSnapshot{a.Table.Freeze()}, nil
}

// Restore replaces the table's state.
func (a *Adapter) Restore(r io.ReadCloser) error {
	defer r.Close()
	return a.Table.Restore(r)
}

type frozenSnapshot struct{ frozen *Frozen }

func (s *frozenSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.frozen.Persist(sink); err != nil {
		_ = sink.Cancel()
		return err
	}
	return sink.Close()
}

func (s *frozenSnapshot) Release() { s.frozen.Release() }
