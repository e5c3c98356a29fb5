package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// probeTimeout bounds one probe: connect, handshake, answer.
const probeTimeout = time.Second

// probeAnswer describes a node to a peer that asks. It is data about raft's
// state at that moment, never a promise.
type probeAnswer struct {
	server  serverName // from the handshake
	cluster clusterID  // from the handshake

	Fresh      bool         `json:"fresh"`            // no raft state at all, no cluster id
	Peers      []string     `json:"peers"`            // ids of its static list, sorted
	LeaderID   string       `json:"leader,omitempty"` // raft server id; empty = knows none
	LeaderAddr string       `json:"leader_addr,omitempty"`
	Term       uint64       `json:"term"`
	LastIndex  uint64       `json:"last_index"`
	Servers    []serverInfo `json:"servers,omitempty"` // its newest configuration
}

// serverInfo is one server of a configuration.
type serverInfo struct {
	ID    string `json:"id"`
	Addr  string `json:"addr"`
	Voter bool   `json:"voter"`
}

// isFresh says whether this node never took part in a cluster up to now.
func (n *Node) isFresh() bool {
	r := n.raft.Load()
	return r != nil && !n.hadState && !n.id.clusterID().known() && r.LastIndex() == 0 && r.CurrentTerm() == 0
}

func (n *Node) answerProbe() probeAnswer {
	ans := probeAnswer{Peers: n.cfg.peerIDs()}
	r := n.raft.Load()
	if r == nil {
		return ans
	}
	ans.Fresh, ans.Term, ans.LastIndex = n.isFresh(), r.CurrentTerm(), r.LastIndex()
	addr, id := r.LeaderWithID()
	ans.LeaderID, ans.LeaderAddr = string(id), string(addr)
	for _, s := range r.GetConfiguration().Configuration().Servers {
		ans.Servers = append(ans.Servers, serverInfo{ID: string(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return ans
}

// probed is the outcome of one probe.
type probed struct {
	peer Peer
	ans  probeAnswer
	err  error
}

// probeAll asks every other node of the static list, all at once.
func (n *Node) probeAll(ctx context.Context) []probed {
	var others []Peer
	for _, p := range n.cfg.Peers {
		if p.ID != n.cfg.NodeID {
			others = append(others, p)
		}
	}
	return n.probeEach(ctx, others)
}

func (n *Node) probeEach(ctx context.Context, peers []Peer) []probed {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	res := make([]probed, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		wg.Go(func() {
			ans, err := n.stream.probePeer(ctx, p.ID, p.Addr)
			res[i] = probed{peer: p, ans: ans, err: err}
		})
	}
	wg.Wait()
	return res
}

// serverPeer is where a server of a configuration answers.
func serverPeer(s raft.Server) (serverName, Peer, error) {
	name, hostport, err := parseServerAddr(s.Address)
	return name, Peer{ID: name.node, Addr: hostport}, err
}
