package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-lock/holdfast/fsm"
)

// takeoverRetry is the pause before a Takeover that failed is proposed again
// while still leader.
const takeoverRetry = 100 * time.Millisecond

// takeoverTries is how many times that is done before leadership is given up.
const takeoverTries = 5

// leadership turns raft's gains and losses into Lead and Follow. All fields are
// owned by run.
type leadership struct {
	n *Node
	f Follower

	term    uint64             // counts gains and losses; tags what is in flight
	tries   int                // failed Takeovers of this term
	leading bool               // between Lead and Follow
	cancel  context.CancelFunc // ends the membership loop; nil if none

	taken chan takeoverDone
	pings chan chan struct{}
	again chan struct{} // a term to be begun anew, see Resign
}

// takeoverDone is the outcome of one Takeover.
type takeoverDone struct {
	term uint64
	res  fsm.Result
	err  error
}

func newLeadership(n *Node, f Follower) *leadership {
	return &leadership{n: n, f: f, taken: make(chan takeoverDone, 4), pings: make(chan chan struct{}), again: make(chan struct{}, 1)}
}

// run is the only reader of raft's notifications (raft stops while nobody reads
// them) and the only caller of the Follower. It ends with the node.
func (l *leadership) run() {
	defer l.lose("shutting down")
	failing := l.n.failing
	for {
		select {
		case <-l.n.ctx.Done():
			return
		case <-failing:
			failing = nil
			l.term++
			l.lose("this node has failed")
		case gained := <-l.n.notify:
			l.change(gained)
		case done := <-l.taken:
			l.takenOver(done)
		case <-l.again:
			if l.leading && !l.n.hasFailed() {
				l.change(true)
			}
		case pong := <-l.pings:
			close(pong)
		}
	}
}

// change handles one notification. Lost-and-regained may arrive as two gains:
// every gain is a new term with its own Takeover.
func (l *leadership) change(gained bool) {
	l.term++
	l.tries = 0
	l.lose("another node may lead")
	if gained && !l.n.hasFailed() {
		l.n.log.Info("elected, taking over", "raft_term", l.n.raft.Load().CurrentTerm())
		l.takeover(0)
	}
}

// lose ends the current term, if there is one.
func (l *leadership) lose(why string) {
	l.n.leading.Store(false)
	l.n.member.Store(nil)
	if l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
	if l.leading {
		l.leading = false
		l.n.log.Info("no longer leading", "reason", why)
		l.f.Follow()
	}
}

// takeover proposes our Takeover after a pause; the outcome arrives on taken.
func (l *leadership) takeover(pause time.Duration) {
	term, n := l.term, l.n
	n.spawn(func() {
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-n.ctx.Done():
				return
			}
		}
		entry, err := fsm.AppendEntry(nil, &fsm.Entry{Ops: []fsm.Op{{Kind: fsm.KindTakeover, Takeover: n.newTakeover(time.Now())}}})
		if err != nil {
			l.deliver(takeoverDone{term: term, err: err})
			return
		}
		n.propose(entry, func(res fsm.Result, err error) { l.deliver(takeoverDone{term: term, res: res, err: err}) })
	})
}

func (l *leadership) deliver(d takeoverDone) {
	select {
	case l.taken <- d:
	case <-l.n.ctx.Done():
	}
}

// takenOver begins to lead if the Takeover is applied and still the newest word.
func (l *leadership) takenOver(d takeoverDone) {
	r := l.n.raft.Load()
	if d.term != l.term || l.leading || l.n.hasFailed() {
		return // overtaken by a later gain or loss
	}
	if r.State() != raft.Leader {
		return // the loss is on its way here
	}
	err := d.err
	if err == nil && (d.res.Stale || len(d.res.Outcomes) != 1 || d.res.Outcomes[0].Code != fsm.TookOver) {
		err = fmt.Errorf("not applied as a takeover (stale: %v)", d.res.Stale)
	}
	if err != nil {
		l.tries++
		if errors.Is(err, fsm.ErrNotExecuted) && l.tries < takeoverTries {
			l.takeover(takeoverRetry)
			return
		}
		l.n.log.Warn("elected but the takeover failed", "error", err)
		l.tries = 0
		l.n.Resign("the takeover failed")
		l.takeover(l.n.cfg.ElectionTimeout + takeoverRetry) // in case nobody else could take it
		return
	}
	l.leading = true
	ctx, cancel := context.WithCancel(l.n.ctx)
	l.cancel = cancel
	m := newMembership(ctx, l.n)
	l.n.spawn(m.run)
	l.n.member.Store(m)
	l.n.log.Info("leading", "epoch", d.res.Index, "clock", d.res.Clock)
	l.n.leading.Store(true)
	l.f.Lead(d.res.Index, d.res.Clock)
	l.nudge(d.res)
}

// nudge appends a tick that moves nothing: it carries the commit of the Takeover
// to the followers now, which then know where to send clients, instead of at
// raft's next idle message.
func (l *leadership) nudge(took fsm.Result) {
	entry, err := fsm.AppendEntry(nil, &fsm.Entry{Epoch: took.Index, Stamp: took.Clock, Ops: []fsm.Op{{Kind: fsm.KindTick}}})
	if err == nil {
		l.n.propose(entry, func(fsm.Result, error) {})
	}
}

var (
	tokenZero  = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	clockSane  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tokenShift = 22
)

// tokenFloor is the least token that a leader of this moment may hand out after a
// cluster was rebuilt; 0, no floor, if the wall clock cannot be right.
func tokenFloor(now time.Time) uint64 {
	if now.Before(clockSane) {
		return 0
	}
	// With the fraction of the second: a cluster may be rebuilt within one. Four
	// million tokens a second is more than are ever granted.
	return uint64(now.Unix()-tokenZero.Unix())<<tokenShift | uint64(now.Nanosecond())<<tokenShift/uint64(time.Second)
}

func (n *Node) newTakeover(now time.Time) *fsm.Takeover {
	return &fsm.Takeover{
		NodeID: n.cfg.NodeID, ClientAddr: n.cfg.AdvertiseClientAddr, AdminAddr: n.cfg.AdvertiseAdminAddr,
		TokenFloor: tokenFloor(now), ClusterID: newClusterID(),
	}
}
