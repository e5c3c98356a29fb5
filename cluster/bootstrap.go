package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

const (
	formingPause = 200 * time.Millisecond // between looks while not a member
	settledPause = time.Second            // between looks of a member
	waitingEvery = 10 * time.Second       // between lines that say what is waited for
	lonelyAfter  = 5 * time.Second        // a member without a leader for so long asks around
)

// assemble runs until ctx ends. While the node is no voting member it forms the
// cluster with its peers, or finds it and asks to be taken in; later it only
// watches, and says what is wrong when there is no leader.
func (n *Node) assemble(ctx context.Context) {
	var lastSaid time.Time
	lonely := time.Now()
	for {
		pause, why := formingPause, ""
		switch own, ok := n.ownServer(); {
		case n.hasFailed():
			return
		case !ok || own.Suffrage != raft.Voter:
			why = n.seek(ctx, ok)
		default:
			pause = settledPause
			if _, id := n.raft.Load().LeaderWithID(); id != "" {
				lonely = time.Now()
			} else if time.Since(lonely) > lonelyAfter {
				why = n.diagnose(ctx)
			}
		}
		if ctx.Err() != nil {
			return
		}
		n.setWaiting(why)
		if why == "" {
			lastSaid = time.Time{}
		} else if time.Since(lastSaid) >= waitingEvery {
			lastSaid = time.Now()
			n.log.Info("waiting", "for", why)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (n *Node) setWaiting(why string) {
	if why == "" {
		n.waiting.Store(nil)
		return
	}
	n.waiting.Store(&why)
}

// ownServer returns this server's entry in raft's newest configuration.
func (n *Node) ownServer() (raft.Server, bool) {
	for _, s := range n.raft.Load().GetConfiguration().Configuration().Servers {
		if s.ID == n.id.self.id() {
			return s, true
		}
	}
	return raft.Server{}, false
}

// seek makes one attempt to become a member and returns what it waits for.
// known = this server is in its own configuration, as a non-voter.
func (n *Node) seek(ctx context.Context, known bool) string {
	res := n.probeAll(ctx)
	if ctx.Err() != nil {
		return ""
	}
	if !known && n.isFresh() {
		allFresh, why := n.formable(res)
		if allFresh && n.cfg.founder() == n.cfg.NodeID {
			return n.bootstrap(res)
		}
		if allFresh {
			return "node " + n.cfg.founder() + " to found the cluster"
		}
		if !anyState(res) {
			return why
		}
	}
	return n.joinOnce(ctx, res)
}

// formable says whether every node of the list answered as fresh, with the same
// list; else what is missing. One that did not answer may hold the cluster's
// state, so nothing less will do.
func (n *Node) formable(res []probed) (bool, string) {
	var missing []string
	own := n.cfg.peerIDs()
	for _, p := range res {
		switch {
		case p.err != nil:
			missing = append(missing, fmt.Sprintf("%s at %s (%v)", p.peer.ID, p.peer.Addr, shortErr(p.err)))
		case !slices.Equal(p.ans.Peers, own):
			missing = append(missing, fmt.Sprintf("%s to have the same peer list (it has %s, this node %s)", p.peer.ID, strings.Join(p.ans.Peers, ","), strings.Join(own, ",")))
		case !p.ans.Fresh:
			missing = append(missing, p.peer.ID+" (it has state of an earlier cluster)")
		}
	}
	return len(missing) == 0, strings.Join(missing, "; ")
}

func anyState(res []probed) bool {
	return slices.ContainsFunc(res, func(p probed) bool { return p.err == nil && !p.ans.Fresh })
}

func shortErr(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer"
	}
	return err.Error()
}

// bootstrap founds the cluster with exactly the incarnations that answered.
func (n *Node) bootstrap(res []probed) string {
	servers := []raft.Server{{Suffrage: raft.Voter, ID: n.id.self.id(), Address: n.id.self.at(n.addr)}}
	for _, p := range res {
		servers = append(servers, raft.Server{Suffrage: raft.Voter, ID: p.ans.server.id(), Address: p.ans.server.at(p.peer.Addr)})
	}
	n.log.Info("every peer is fresh, founding the cluster", "servers", len(servers))
	f := n.raft.Load().BootstrapCluster(raft.Configuration{Servers: servers})
	if err := n.wait(n.ctx, f); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Sprintf("another attempt to found the cluster (%v)", err)
	}
	return ""
}

// wait waits for a raft future no longer than ctx, and not past a failure: raft
// may never answer one.
func (n *Node) wait(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-n.failing:
		return n.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// diagnose says why a member has no leader.
func (n *Node) diagnose(ctx context.Context) string {
	var silent []string
	for _, p := range n.probeAll(ctx) {
		if p.err != nil {
			silent = append(silent, fmt.Sprintf("%s at %s (%v)", p.peer.ID, p.peer.Addr, shortErr(p.err)))
			continue
		}
		if p.ans.LeaderID == "" {
			continue
		}
		addr, other := findServer(p.ans.Servers, n.id.self)
		switch {
		case addr == "" && other != "":
			return fmt.Sprintf("an operator: the cluster has replaced this server, %s, by %s: remove the data directory %s", n.id.self, other, n.cfg.DataDir)
		case addr != string(n.stream.addr): // removed while away, or moved to another address
			return n.joinOnce(ctx, []probed{p})
		}
	}
	if len(silent) == 0 {
		return "a leader to be elected"
	}
	return "a leader; these nodes do not answer: " + strings.Join(silent, "; ")
}

// findServer looks for name in a configuration and returns its address there, and
// the id of another incarnation of the same node; empty = not found.
func findServer(servers []serverInfo, name serverName) (addr, other string) {
	for _, s := range servers {
		got, err := parseServerID(raft.ServerID(s.ID))
		switch {
		case err != nil:
		case got == name:
			return s.Addr, ""
		case got.node == name.node:
			other = s.ID
		}
	}
	return "", other
}
