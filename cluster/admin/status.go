package admin

import (
	"net/http"
	"time"
)

// Status is the body of /v1/status. Its parts are read one after the other. Sizes
// are this node's own; waiters and sessions are only known where clients are.
type Status struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"` // of the data directory, 16 hex digits
	Version     string `json:"version"`
	Cluster     string `json:"cluster"`
	ClusterID   string `json:"cluster_id"` // empty while unknown

	Role     string `json:"role"`      // leader, elected, follower, non-voter, candidate, forming or stopped
	Ready    bool   `json:"ready"`     // as /readyz
	NotReady string `json:"not_ready"` // why not; empty when ready
	Waiting  string `json:"waiting"`   // what forming or joining waits for; empty if nothing
	Leader   Leader `json:"leader"`

	Term         uint64 `json:"term"`
	Epoch        uint64 `json:"epoch"` // log index at which the current leader took over
	AppliedIndex uint64 `json:"applied_index"`
	CommitIndex  uint64 `json:"commit_index"`
	LastIndex    uint64 `json:"last_index"`

	ClusterClockMS int64  `json:"cluster_clock_ms"` // leases are measured on it
	LastContactMS  *int64 `json:"last_contact_ms"`  // since the leader was heard; 0 on the leader, null if never

	Members []Member `json:"members"`

	Grants   int `json:"grants"`   // locks held, as applied here
	Waiters  int `json:"waiters"`  // acquires queued at this node
	Sessions int `json:"sessions"` // client connections of this node
}

// Leader says who leads; all empty while nobody is known to. The addresses come
// with the leader's first log entry, a moment after its name.
type Leader struct {
	Node       string `json:"node"`
	ClientAddr string `json:"client_addr"`
	AdminAddr  string `json:"admin_addr"`
}

// Member is one server of the newest configuration.
type Member struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	PeerAddr    string `json:"peer_addr"`
	Voter       bool   `json:"voter"`
}

func (h *handler) status(w http.ResponseWriter, _ *http.Request) {
	node, clients, ready := h.cfg.Node.Status(), h.cfg.Clients.Stats(), h.cfg.Node.Ready()
	s := Status{
		Node: node.NodeID, Incarnation: node.Incarnation, Version: h.cfg.Version,
		Cluster: node.ClusterName, ClusterID: node.ClusterID,
		Role: string(node.Role), Ready: ready == nil, Waiting: node.Waiting,
		Leader: Leader{node.LeaderID, node.LeaderClientAddr, node.LeaderAdminAddr},
		Term:   node.Term, Epoch: node.Epoch,
		AppliedIndex: node.AppliedIndex, CommitIndex: node.CommitIndex, LastIndex: node.LastIndex,
		ClusterClockMS: node.Clock.Milliseconds(),
		Members:        make([]Member, 0, len(node.Members)),
		Grants:         h.cfg.Locks.Len(), Waiters: clients.Waiters, Sessions: clients.Sessions,
	}
	if ready != nil {
		s.NotReady = ready.Error()
	}
	if node.LastContact >= 0 {
		ms := int64(node.LastContact / time.Millisecond)
		s.LastContactMS = &ms
	}
	for _, m := range node.Members {
		s.Members = append(s.Members, Member{m.NodeID, m.Incarnation, m.PeerAddr, m.Voter})
	}
	writeJSON(w, http.StatusOK, s)
}
