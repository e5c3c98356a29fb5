package cluster

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-lock/holdfast/fsm"
)

// enqueueTimeout bounds how long Propose waits for a place in raft's queue.
// The queue is full only while raft's main loop stands still.
const enqueueTimeout = 5 * time.Millisecond

// Propose appends one encoded entry to the log. done is called exactly once, from
// another goroutine, within ProposeTimeout: with a nil error the entry is
// committed and applied here and the Result (which may be Stale) is its outcome;
// fsm.ErrNotExecuted says that it was not and never will be appended;
// fsm.ErrUnknown that it may have been, or may yet be. entry belongs to the node
// from here on.
func (n *Node) Propose(entry []byte, done func(fsm.Result, error)) {
	if !n.leading.Load() {
		go done(fsm.Result{}, fmt.Errorf("%w: this node does not lead", fsm.ErrNotExecuted))
		return
	}
	n.propose(entry, done)
}

// propose is Propose without the check that this node leads: the Takeover itself
// goes through here.
func (n *Node) propose(entry []byte, done func(fsm.Result, error)) {
	r := n.raft.Load()
	if r == nil || n.hasFailed() {
		go done(fsm.Result{}, fmt.Errorf("%w: this node is not running", fsm.ErrNotExecuted))
		return
	}
	f := r.Apply(entry, enqueueTimeout)
	var answered atomic.Bool
	finish := func(res fsm.Result, err error) {
		if answered.CompareAndSwap(false, true) {
			done(res, err)
		}
	}
	// Raft never answers some futures after a shutdown or a failure.
	late := time.AfterFunc(n.cfg.ProposeTimeout, func() {
		finish(fsm.Result{}, fmt.Errorf("%w: no answer within %v", fsm.ErrUnknown, n.cfg.ProposeTimeout))
	})
	go func() {
		err := f.Error()
		late.Stop()
		if err != nil {
			finish(fsm.Result{}, classify(err, f.Index()))
			return
		}
		res, ok := f.Response().(fsm.Result)
		if !ok {
			finish(fsm.Result{}, fmt.Errorf("%w: the state machine gave no result", fsm.ErrUnknown))
			return
		}
		finish(res, nil)
	}()
}

// classify says what a failed proposal means. Read off raft v1.7.3:
//   - ErrNotLeader is given by the follower's and candidate's loops, and by a
//     leader that is about to step down, to entries taken off the queue and dropped;
//   - ErrLeadershipTransferInProgress likewise by a leader in transfer;
//   - ErrEnqueueTimeout is given instead of entering the queue;
//   - ErrRaftShutdown is given instead of entering the queue, or to an entry that
//     is already committed: only the latter has an index.
//
// All else (ErrLeadershipLost, a store error) is given to entries in the log.
func classify(err error, index uint64) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrRaftShutdown) && index == 0:
		return fmt.Errorf("%w: %w", fsm.ErrNotExecuted, err)
	default:
		return fmt.Errorf("%w: %w", fsm.ErrUnknown, err)
	}
}
