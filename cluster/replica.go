package cluster

import (
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// replica stands between raft and the lock table's adapter. It keeps what raft
// does not give away: the index of the committed configuration, without which a
// membership change cannot be made conditional on the one it was decided on.
type replica struct {
	raft.BatchingFSM
	applied func() // called after anything was applied, on raft's FSM goroutine

	mu        sync.Mutex
	conf      raft.Configuration // guarded by mu
	confIndex uint64             // guarded by mu; 0 = none committed yet
}

// ApplyBatch implements raft.BatchingFSM.
func (r *replica) ApplyBatch(logs []*raft.Log) []any {
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			r.noteConf(raft.DecodeConfiguration(l.Data), l.Index)
		}
	}
	res := r.BatchingFSM.ApplyBatch(logs)
	r.applied()
	return res
}

// Restore implements raft.FSM.
func (r *replica) Restore(rc io.ReadCloser) error {
	if err := r.BatchingFSM.Restore(rc); err != nil {
		return err
	}
	r.applied()
	return nil
}

func (r *replica) noteConf(c raft.Configuration, index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if index > r.confIndex {
		r.conf, r.confIndex = c.Clone(), index
	}
}

// committedConf returns the configuration of the newest committed change that
// this node has applied, and its index; 0 if there is none yet.
func (r *replica) committedConf() (raft.Configuration, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conf.Clone(), r.confIndex
}
