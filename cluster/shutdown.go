package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const (
	stopLimit     = 15 * time.Second // of Shutdown where the caller's context has no deadline
	transferLimit = 3 * time.Second  // of handing over leadership on the way out
	killLimit     = 10 * time.Second
)

// TransferLeadership hands leadership to the most caught-up voter that answers
// and waits until the new leader's client address is known here, so that
// waiting clients can be told. It does nothing on a node that is not raft's
// leader, and fails where no other voter can take over.
func (n *Node) TransferLeadership(ctx context.Context) error {
	r := n.raft.Load()
	if r == nil || n.hasFailed() || r.State() != raft.Leader {
		return nil
	}
	targets := n.heirs(ctx)
	if len(targets) == 0 {
		return errors.New("no other voter answers")
	}
	var last error
	for _, t := range targets {
		n.log.Info("handing over leadership", "to", string(t.ID))
		last = n.wait(ctx, r.LeadershipTransferToServer(t.ID, t.Address))
		if r.State() != raft.Leader {
			n.awaitSuccessor(ctx)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("no voter took over: %w", last)
}

// heirs returns the other voters that answer, the most caught-up first.
func (n *Node) heirs(ctx context.Context) []raft.Server {
	type heir struct {
		raft.Server
		last uint64
	}
	var ask []Peer
	servers := map[string]raft.Server{}
	for _, s := range n.raft.Load().GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter || s.ID == n.id.self.id() {
			continue
		}
		if _, p, err := serverPeer(s); err == nil {
			ask, servers[p.ID] = append(ask, p), s
		}
	}
	var found []heir
	for _, p := range n.probeEach(ctx, ask) {
		if s := servers[p.peer.ID]; p.err == nil && p.ans.server.id() == s.ID {
			found = append(found, heir{s, p.ans.LastIndex})
		}
	}
	slices.SortStableFunc(found, func(a, b heir) int { return cmp.Compare(b.last, a.last) })
	res := make([]raft.Server, len(found))
	for i, h := range found {
		res[i] = h.Server
	}
	return res
}

// awaitSuccessor waits, a second at most, until the new leader has taken over.
func (n *Node) awaitSuccessor(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, id := n.raft.Load().LeaderWithID(); id != "" && id != n.id.self.id() && n.table.Leader().NodeID != n.cfg.NodeID {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Resign gives up leadership in the background: by a transfer or, where that
// fails, by falling silent until the leader's lease has run out. The only voter
// of a cluster begins a new term instead. A call while another is under way is
// made good after it: leadership may have been lost and regained in between.
func (n *Node) Resign(reason string) {
	if !n.resigning.CompareAndSwap(false, true) {
		n.resignAgain.Store(true)
		if n.resigning.Load() || !n.resignAgain.Swap(false) {
			return // the one under way will see it, or has
		}
		n.Resign(reason)
		return
	}
	done := func() {
		n.resigning.Store(false)
		if n.resignAgain.Swap(false) {
			n.Resign("asked again while leadership was being given up")
		}
	}
	r := n.raft.Load()
	if r == nil || r.State() != raft.Leader {
		done()
		return
	}
	n.log.Warn("giving up leadership", "reason", reason)
	started := n.spawn(func() {
		defer done()
		if n.voters() == 1 {
			select {
			case n.lead.again <- struct{}{}:
			default:
			}
			return
		}
		ctx, cancel := context.WithTimeout(n.ctx, transferLimit)
		defer cancel()
		if err := n.TransferLeadership(ctx); err != nil && n.ctx.Err() == nil && r.State() == raft.Leader {
			n.log.Warn("leadership could not be handed over, falling silent", "error", err)
			n.stream.mute(n.cfg.LeaderLeaseTimeout + 2*n.cfg.ElectionTimeout)
		}
	})
	if !started {
		done()
	}
}

func (n *Node) voters() (count int) {
	for _, s := range n.raft.Load().GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			count++
		}
	}
	return count
}

// Shutdown hands over leadership if the node leads, then stops it and closes its
// files. It takes no longer than ctx, or 15 s if that has no deadline, whatever
// raft, the disk or the peers do; the error says what did not stop in time.
func (n *Node) Shutdown(ctx context.Context) error {
	n.stopOnce.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, stopLimit)
		defer cancel()
		tctx, tcancel := context.WithTimeout(ctx, transferLimit)
		if err := n.TransferLeadership(tctx); err != nil && n.voters() > 1 {
			n.log.Warn("stopping without handing over leadership", "error", err)
		}
		tcancel()
		n.stopErr = n.stop(ctx)
	})
	return n.stopErr
}

// Kill stops the node as a crash would, without handing over leadership, and
// closes its files.
func (n *Node) Kill() error {
	n.stopOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), killLimit)
		defer cancel()
		n.stopErr = n.stop(ctx)
	})
	return n.stopErr
}

// stop ends everything, in an order in which nothing waits for what is gone: raft
// is told, its connections are cut so that no message holds it up, our loops
// drain its notifications to the last, and the files go when nobody uses them.
func (n *Node) stop(ctx context.Context) error {
	var errs []error
	r := n.raft.Load()
	var f raft.Future
	if r != nil {
		f = r.Shutdown()
	}
	if n.trans != nil {
		_ = n.trans.Close()
	}
	if r != nil {
		if err := await(ctx, func() { _ = f.Error() }); err != nil {
			errs = append(errs, fmt.Errorf("raft did not stop: %w", err))
		}
	}
	n.mu.Lock()
	n.stopping = true
	n.mu.Unlock()
	n.cancel()
	_ = n.stream.Close()
	if err := await(ctx, func() { n.wg.Wait(); n.stream.wg.Wait() }); err != nil {
		errs = append(errs, fmt.Errorf("the node's loops did not stop: %w", err))
	}
	if err := n.stores.close(ctx); err != nil {
		errs = append(errs, err)
	}
	n.log.Info("stopped")
	return errors.Join(errs...)
}

// await runs f, but waits for it no longer than ctx.
func await(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
