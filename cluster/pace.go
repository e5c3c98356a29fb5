package cluster

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// beatsPerTimeout is how many heartbeats a follower gets within its heartbeat
// timeout, at the least.
const beatsPerTimeout = 10.0 / 3

// pacedTransport spaces a leader's heartbeats. Raft sends them every tenth to
// twentieth of the heartbeat timeout; with a timeout of 250 ms these are 60
// messages a second from a leader that has nothing to do, and waking up for
// them is nearly all it spends. Every 75 ms leaves a follower three before it
// campaigns. Raft sends each peer's heartbeats one after another from a
// goroutine of their own, so waiting here delays nothing else.
type pacedTransport struct {
	*raft.NetworkTransport
	space time.Duration // between two heartbeats to one peer

	mu   sync.Mutex
	next map[raft.ServerID]time.Time // guarded by mu: no heartbeat before it
}

func newPacedTransport(t *raft.NetworkTransport, heartbeatTimeout time.Duration) *pacedTransport {
	return &pacedTransport{
		NetworkTransport: t, space: time.Duration(float64(heartbeatTimeout) / beatsPerTimeout),
		next: make(map[raft.ServerID]time.Time),
	}
}

// AppendEntries implements raft.Transport.
func (t *pacedTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if isHeartbeat(args) {
		time.Sleep(t.wait(id, time.Now()))
	}
	return t.NetworkTransport.AppendEntries(id, target, args, resp)
}

// wait says how long the next heartbeat to a peer has to wait, and counts it.
func (t *pacedTransport) wait(id raft.ServerID, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.next[id]
	if at.Before(now) {
		at = now
	}
	t.next[id] = at.Add(t.space)
	return at.Sub(now)
}

// isHeartbeat tells raft's heartbeats from its replication messages, as raft's
// own transport does when it receives them.
func isHeartbeat(r *raft.AppendEntriesRequest) bool {
	return r.Term != 0 && r.PrevLogEntry == 0 && r.PrevLogTerm == 0 && len(r.Entries) == 0 && r.LeaderCommitIndex == 0
}
