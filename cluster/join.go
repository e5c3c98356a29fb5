package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/raft"
)

// joinRequest is sent, again and again, by a server that is no voting member:
// to be taken in as a non-voter, then to report its progress until it is promoted.
type joinRequest struct {
	Addr    string `json:"addr"`    // where its peers dial it
	Applied uint64 `json:"applied"` // its applied index
}

// joinState is the leader's answer to a join.
type joinState string

const (
	joinVoter    joinState = "voter"     // it is a voting member, its log will tell it
	joinNonvoter joinState = "non-voter" // it is catching up
	joinMoved    joinState = "moved"     // another server is the leader
	joinRefused  joinState = "refused"   // not without an operator
	joinLater    joinState = "later"     // not now; the reason says what stands in the way
)

type joinAnswer struct {
	State      joinState `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	LeaderAddr string    `json:"leader_addr,omitempty"` // with joinMoved; empty = unknown
}

// joinOnce asks the leader, as the probes know it, once, and returns what this
// node waits for.
func (n *Node) joinOnce(ctx context.Context, res []probed) string {
	var leader raft.ServerAddress
	var silent []string
	var term uint64
	for _, p := range res {
		if p.err != nil {
			silent = append(silent, fmt.Sprintf("%s at %s (%v)", p.peer.ID, p.peer.Addr, shortErr(p.err)))
		} else if p.ans.LeaderAddr != "" && p.ans.Term >= term {
			leader, term = raft.ServerAddress(p.ans.LeaderAddr), p.ans.Term
		}
	}
	if leader == "" {
		why := "the cluster to have a leader"
		if len(silent) > 0 {
			why += "; these nodes do not answer: " + strings.Join(silent, "; ")
		}
		return why
	}
	name, hostport, err := parseServerAddr(leader)
	if err != nil {
		return fmt.Sprintf("a leader with a valid address (%v)", err)
	}
	if name == n.id.self {
		return "" // we lead: our own configuration is about to say so
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.JoinTimeout)
	defer cancel()
	ans, err := n.stream.requestJoin(ctx, name, hostport, joinRequest{Addr: n.addr, Applied: n.raft.Load().AppliedIndex()})
	if err != nil {
		return fmt.Sprintf("the leader %s to answer (%v)", name.node, shortErr(err))
	}
	switch ans.State {
	case joinVoter:
		return "the leader's log, to become a voting member"
	case joinNonvoter:
		return "the log to be caught up with the leader's"
	case joinMoved:
		return "the new leader to be known"
	default:
		return fmt.Sprintf("the leader %s to take this node in: %s", name.node, ans.Reason)
	}
}

// answerJoin hands a join to the leader's membership loop, or says who leads.
func (n *Node) answerJoin(ctx context.Context, from serverName, req joinRequest) joinAnswer {
	m := n.member.Load()
	r := n.raft.Load()
	if m == nil || r == nil {
		var addr raft.ServerAddress
		if r != nil {
			addr, _ = r.LeaderWithID()
		}
		return joinAnswer{State: joinMoved, LeaderAddr: string(addr)}
	}
	if err := checkAddr(req.Addr, true); err != nil {
		return joinAnswer{State: joinRefused, Reason: fmt.Sprintf("its address %q: %v", req.Addr, err)}
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.JoinTimeout)
	defer cancel()
	return m.submit(ctx, from, req)
}

// joinCall is a join on its way to the membership loop.
type joinCall struct {
	from serverName
	req  joinRequest
	res  chan joinAnswer // buffered
}

// membership changes the configuration. It exists only on a leader, from
// its Takeover on, and ends with the leadership; one loop does one change at a time.
type membership struct {
	n     *Node
	ctx   context.Context
	calls chan joinCall
}

func newMembership(ctx context.Context, n *Node) *membership {
	return &membership{n: n, ctx: ctx, calls: make(chan joinCall)}
}

func (m *membership) submit(ctx context.Context, from serverName, req joinRequest) joinAnswer {
	call := joinCall{from: from, req: req, res: make(chan joinAnswer, 1)}
	select {
	case m.calls <- call:
	case <-m.ctx.Done():
		return joinAnswer{State: joinMoved}
	case <-ctx.Done():
		return joinAnswer{State: joinLater, Reason: "the leader is busy with another node"}
	}
	select {
	case ans := <-call.res:
		return ans
	case <-m.ctx.Done():
		return joinAnswer{State: joinMoved}
	}
}

func (m *membership) run() {
	for {
		select {
		case <-m.ctx.Done():
			return
		case call := <-m.calls:
			ctx, cancel := context.WithTimeout(m.ctx, m.n.cfg.JoinTimeout)
			ans, err := m.admit(ctx, call.from, call.req)
			cancel()
			if err != nil {
				ans = joinAnswer{State: joinLater, Reason: err.Error()}
				m.n.stream.warn("join "+call.from.String(), "cannot take a node in yet", "server", call.from.String(), "reason", err)
			}
			call.res <- ans
		}
	}
}

// promoteWithin is how many entries behind the commit index a non-voter may be
// to get its vote: the few that are in flight anyway.
const promoteWithin = 128

// admit takes the next step for one server: replace its old identity, add it,
// promote it. Each change is conditional on the configuration it was decided on.
func (m *membership) admit(ctx context.Context, from serverName, req joinRequest) (joinAnswer, error) {
	conf, index := m.n.replica.committedConf()
	if index == 0 {
		return joinAnswer{}, errors.New("the leader does not know its configuration yet")
	}
	var old *raft.Server
	for _, s := range conf.Servers {
		name, err := parseServerID(s.ID)
		if err != nil {
			return joinAnswer{}, err
		}
		if name == from {
			return m.advance(ctx, s, from, req, index)
		}
		if name.node == from.node {
			old = &s
		}
	}
	if _, ok := m.n.cfg.peer(from.node); !ok {
		return joinAnswer{State: joinRefused, Reason: fmt.Sprintf("node %s is not in the peer list of the leader", from.node)}, nil
	}
	if old != nil {
		next, err := m.retire(ctx, *old, from, conf, index)
		if err != nil {
			return joinAnswer{}, err
		}
		index = next
	}
	if err := m.answersAs(ctx, from, req.Addr); err != nil {
		return joinAnswer{}, err
	}
	m.n.log.Info("taking a node in as non-voter", "server", from.String(), "addr", req.Addr)
	f := m.n.raft.Load().AddNonvoter(from.id(), from.at(req.Addr), index, m.n.cfg.JoinTimeout)
	if err := m.n.wait(ctx, f); err != nil {
		return joinAnswer{}, fmt.Errorf("add %s: %w", from, err)
	}
	return joinAnswer{State: joinNonvoter}, nil
}

// advance deals with a server that is in the configuration: a changed address is
// taken over, a non-voter that has caught up gets its vote.
func (m *membership) advance(ctx context.Context, s raft.Server, from serverName, req joinRequest, index uint64) (joinAnswer, error) {
	r, addr := m.n.raft.Load(), from.at(req.Addr)
	caughtUp := s.Suffrage != raft.Voter && req.Applied+promoteWithin >= r.CommitIndex()
	switch {
	case s.Address != addr:
		if err := m.answersAs(ctx, from, req.Addr); err != nil {
			return joinAnswer{}, err
		}
		m.n.log.Info("a node has a new address", "server", from.String(), "addr", req.Addr)
		add := r.AddNonvoter
		if s.Suffrage == raft.Voter {
			add = r.AddVoter
		}
		if err := m.n.wait(ctx, add(from.id(), addr, index, m.n.cfg.JoinTimeout)); err != nil {
			return joinAnswer{}, fmt.Errorf("change the address of %s: %w", from, err)
		}
	case caughtUp:
		m.n.log.Info("giving a node its vote: it has caught up", "server", from.String())
		if err := m.n.wait(ctx, r.AddVoter(from.id(), addr, index, m.n.cfg.JoinTimeout)); err != nil {
			return joinAnswer{}, fmt.Errorf("promote %s: %w", from, err)
		}
		return joinAnswer{State: joinVoter}, nil
	}
	if s.Suffrage == raft.Voter {
		return joinAnswer{State: joinVoter}, nil
	}
	return joinAnswer{State: joinNonvoter}, nil
}

// retire removes the old identity of a node that lost its disk and returns the
// new configuration's index. The address configured for it must answer as the
// new incarnation: then the old disk is no longer there, and nothing live is removed.
func (m *membership) retire(ctx context.Context, old raft.Server, from serverName, conf raft.Configuration, index uint64) (uint64, error) {
	oldName, peer, err := serverPeer(old)
	if err != nil {
		return 0, err
	}
	if err := m.answersAs(ctx, from, peer.Addr); err != nil {
		return 0, fmt.Errorf("%s is still a member and is not known to be gone: %w", oldName, err)
	}
	if old.Suffrage == raft.Voter {
		if err := m.keepsQuorum(ctx, old, conf); err != nil {
			return 0, err
		}
	}
	m.n.log.Warn("removing the old identity of a node that lost its data directory", "old", oldName.String(), "new", from.String())
	f := m.n.raft.Load().RemoveServer(old.ID, index, m.n.cfg.JoinTimeout)
	if err := m.n.wait(ctx, f); err != nil {
		return 0, fmt.Errorf("remove %s: %w", oldName, err)
	}
	return f.Index(), nil
}

// answersAs checks who answers at an address.
func (m *membership) answersAs(ctx context.Context, want serverName, hostport string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	ans, err := m.n.stream.probePeer(ctx, want.node, hostport)
	if err != nil {
		return fmt.Errorf("%s does not answer as %s: %s", hostport, want, shortErr(err))
	}
	if ans.server != want {
		return fmt.Errorf("%s answers as %s, not as %s", hostport, ans.server, want)
	}
	return nil
}

// keepsQuorum refuses a removal after which the voters that answer now would be
// no majority of the rest.
func (m *membership) keepsQuorum(ctx context.Context, gone raft.Server, conf raft.Configuration) error {
	voters, alive := 0, 0
	var ask []Peer
	want := map[string]serverName{}
	for _, s := range conf.Servers {
		if s.Suffrage != raft.Voter || s.ID == gone.ID {
			continue
		}
		voters++
		if s.ID == m.n.id.self.id() {
			alive++
			continue
		}
		name, peer, err := serverPeer(s)
		if err != nil {
			return err
		}
		ask, want[peer.ID] = append(ask, peer), name
	}
	for _, p := range m.n.probeEach(ctx, ask) {
		if p.err == nil && p.ans.server == want[p.peer.ID] {
			alive++
		}
	}
	if need := voters/2 + 1; alive < need {
		return fmt.Errorf("removing %s would lose the quorum: %d of the other voters answer, %d are needed", gone.ID, alive, need)
	}
	return nil
}
