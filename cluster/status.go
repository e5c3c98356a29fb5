package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Role is what a node does at a moment.
type Role string

const (
	RoleLeader    Role = "leader"    // its Takeover is applied
	RoleElected   Role = "elected"   // raft's leader, its Takeover is not applied yet
	RoleFollower  Role = "follower"  // a voter that follows
	RoleNonvoter  Role = "non-voter" // catching up
	RoleCandidate Role = "candidate"
	RoleForming   Role = "forming" // in no configuration yet
	RoleStopped   Role = "stopped" // not started, failed or shut down
)

// Member is one server of the newest configuration.
type Member struct {
	NodeID      string
	Incarnation string // of its data directory, 16 hex digits
	PeerAddr    string // host:port
	Voter       bool
}

// Status describes a node at a moment. Its parts are read one after the other.
type Status struct {
	NodeID, Incarnation    string
	ClusterName, ClusterID string // ClusterID is empty while unknown
	Role                   Role
	Term                   uint64

	LeaderID                             string // node id of raft's leader, empty if unknown
	LeaderClientAddr, LeaderAdminAddr    string // as its Takeover says; empty until that is applied here
	AppliedIndex, CommitIndex, LastIndex uint64
	Epoch                                uint64        // index of the current Takeover
	Clock                                time.Duration // cluster time
	LastContact                          time.Duration // since the leader was heard; 0 on the leader, -1 never
	Members                              []Member
	Waiting                              string // what forming or joining waits for, empty if nothing
}

// Status returns a description of the node. It never waits for raft.
func (n *Node) Status() Status {
	s := Status{
		NodeID: n.cfg.NodeID, Incarnation: fmt.Sprintf("%016x", n.id.self.inc), ClusterName: n.cfg.ClusterName,
		Role: RoleStopped, Epoch: n.table.Epoch(), Clock: n.table.Clock(), LastContact: -1,
	}
	if cid := n.id.clusterID(); cid.known() {
		s.ClusterID = cid.String()
	}
	if w := n.waiting.Load(); w != nil {
		s.Waiting = *w
	}
	r := n.raft.Load()
	if r == nil {
		return s
	}
	s.Role = n.role(r)
	s.Term, s.AppliedIndex, s.CommitIndex, s.LastIndex = r.CurrentTerm(), r.AppliedIndex(), r.CommitIndex(), r.LastIndex()
	if _, id := r.LeaderWithID(); id != "" {
		if name, err := parseServerID(id); err == nil {
			s.LeaderID = name.node
			if t := n.table.Leader(); t.NodeID == name.node {
				s.LeaderClientAddr, s.LeaderAdminAddr = t.ClientAddr, t.AdminAddr
			}
		}
	}
	switch last := r.LastContact(); {
	case r.State() == raft.Leader:
		s.LastContact = 0
	case !last.IsZero():
		s.LastContact = time.Since(last)
	}
	for _, srv := range r.GetConfiguration().Configuration().Servers {
		m := Member{Voter: srv.Suffrage == raft.Voter}
		if name, hostport, err := parseServerAddr(srv.Address); err == nil {
			m.NodeID, m.Incarnation, m.PeerAddr = name.node, fmt.Sprintf("%016x", name.inc), hostport
		}
		s.Members = append(s.Members, m)
	}
	return s
}

func (n *Node) role(r *raft.Raft) Role {
	if n.hasFailed() {
		return RoleStopped
	}
	switch r.State() {
	case raft.Leader:
		if n.leading.Load() {
			return RoleLeader
		}
		return RoleElected
	case raft.Candidate:
		return RoleCandidate
	case raft.Shutdown:
		return RoleStopped
	}
	switch own, ok := n.ownServer(); {
	case !ok:
		return RoleForming
	case own.Suffrage != raft.Voter:
		return RoleNonvoter
	}
	return RoleFollower
}

// LeaderClientAddr returns the client address of the current leader, "" if it is
// not known: no leader, or one whose Takeover has not been applied here yet. It is
// cheap enough to be asked for every redirect.
func (n *Node) LeaderClientAddr() string {
	r := n.raft.Load()
	if r == nil {
		return ""
	}
	_, id := r.LeaderWithID()
	name, err := parseServerID(id)
	if err != nil { // also: no leader is known
		return ""
	}
	t := n.table.Leader()
	if t.NodeID != name.node || name == n.id.self && !n.leading.Load() {
		return ""
	}
	return t.ClientAddr
}

// readyWithin is how many election timeouts ago a follower may have heard its leader.
const readyWithin = 3

// Ready returns nil while the node leads, or follows a leader that it heard
// lately; else an error that says why not.
func (n *Node) Ready() error {
	if err := n.failure(); err != nil {
		return err
	}
	r := n.raft.Load()
	if r == nil {
		return errors.New("not started")
	}
	switch role := n.role(r); role {
	case RoleLeader:
		return nil
	case RoleFollower:
	case RoleElected:
		return errors.New("elected, its takeover is not committed yet")
	case RoleCandidate:
		return errors.New("no leader: asking for votes")
	case RoleNonvoter:
		return errors.New("a non-voter that is catching up")
	case RoleForming:
		if w := n.waiting.Load(); w != nil {
			return fmt.Errorf("no member of a cluster yet: waiting for %s", *w)
		}
		return errors.New("no member of a cluster yet")
	default:
		return errors.New("stopped")
	}
	_, id := r.LeaderWithID()
	last := r.LastContact()
	if id == "" || last.IsZero() {
		return errors.New("no leader is known")
	}
	if ago := time.Since(last); ago > readyWithin*n.cfg.ElectionTimeout {
		return fmt.Errorf("the leader %s was last heard %v ago", id, ago.Round(time.Millisecond))
	}
	return nil
}

// livenessWait is how long the leadership loop may take to answer.
const livenessWait = 2 * time.Second

// Liveness returns nil if the node's main loop answers. It never depends on a
// quorum, on peers or on a leader.
func (n *Node) Liveness() error {
	if err := n.failure(); err != nil {
		return err
	}
	if n.raft.Load() == nil {
		return errors.New("not started")
	}
	pong, timeout := make(chan struct{}), time.NewTimer(livenessWait)
	defer timeout.Stop()
	select {
	case n.lead.pings <- pong:
		return nil
	case <-n.ctx.Done():
		return errors.New("stopped")
	case <-timeout.C:
		return fmt.Errorf("the leadership loop has not answered for %v", livenessWait)
	}
}
