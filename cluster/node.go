// Package cluster runs one replica of the lock table: raft with its stores, the
// peer transport, bootstrap, membership and leadership. See DESIGN.md.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-lock/holdfast/fsm"
)

// Follower is what serves clients on top of a Node. Its methods are called in
// turn from one goroutine and must return soon: nothing else about leadership
// is noticed meanwhile.
type Follower interface {
	// Lead begins a term: our Takeover is the log entry of index epoch and has been
	// applied, so everything committed earlier has been too. base is the cluster
	// clock that its Apply returned; entries are stamped from it on.
	Lead(epoch uint64, base time.Duration)
	// Follow ends the term. It is called once per Lead.
	Follow()
}

// Node is one member of the cluster. Open, Start, then Shutdown; a Node is not
// reused.
type Node struct {
	cfg   Config
	log   *slog.Logger
	id    *identity
	addr  string // our peer address as the others dial it
	table *fsm.Table

	stores   *stores
	stream   *peerStream
	replica  *replica
	hadState bool // the data directory took part in a cluster before

	raft  atomic.Pointer[raft.Raft] // nil before Start; set after the two below
	trans *raft.NetworkTransport

	notify      chan bool             // raft's leadership changes
	lead        *leadership           // set by Start
	failed      chan error            // the one fatal error, for Failed
	failing     chan struct{}         // closed with it
	lastFailure atomic.Pointer[error] // set before failing is closed
	failOnce    sync.Once
	adoptCh     chan struct{} // the table has learnt the cluster's id
	adopted     atomic.Bool   // it is in node.json

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc

	leading   atomic.Bool                // between Lead and Follow
	member    atomic.Pointer[membership] // nil unless leading
	waiting   atomic.Pointer[string]     // what forming or joining waits for, for Ready
	resigning atomic.Bool
	// a Resign came while another was under way
	resignAgain atomic.Bool

	mu       sync.Mutex
	stopping bool           // guarded by mu: no new goroutines
	wg       sync.WaitGroup // our own goroutines; Add under mu
	stopOnce sync.Once
	stopErr  error
}

// options are for this package's tests.
type options struct {
	hook storeHook
}

// Open checks the configuration and the data directory, creating it if need be,
// and listens on the peer port. It sends and answers nothing yet. Each error is
// one line that says what to do.
func Open(cfg Config) (*Node, error) { return open(cfg, options{}) }

func open(cfg Config, opt options) (_ *Node, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	ln := cfg.PeerListener
	defer func() {
		if err != nil && ln != nil {
			_ = ln.Close()
		}
	}()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	own, _ := cfg.peer(cfg.NodeID)
	n := &Node{
		cfg: cfg, log: cfg.Logger.With("node", cfg.NodeID), addr: own.Addr, table: fsm.NewTable(),
		notify: make(chan bool, 64), failed: make(chan error, 1), failing: make(chan struct{}), adoptCh: make(chan struct{}, 1),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	g := &guard{timeout: cfg.StoreTimeout, fail: n.fail, hook: opt.hook}
	if n.stores, n.id, err = openStores(&n.cfg, g, newRaftLog(n.log), n.log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = n.stores.closeNow()
		}
	}()
	if n.hadState, err = n.stores.hasState(); err != nil {
		return nil, err
	}
	if ln == nil {
		if ln, err = net.Listen("tcp", cfg.PeerAddr); err != nil {
			return nil, fmt.Errorf("listen for peers: %w", err)
		}
	}
	n.stream = newPeerStream(n.id, n.id.self.at(n.addr), ln, cfg.MaxPeerConns, n.log)
	n.stream.probe, n.stream.join = n.answerProbe, n.answerJoin
	n.replica = &replica{
		BatchingFSM: &fsm.Adapter{Table: n.table, Fatal: n.fatalEntry},
		applied:     n.noteClusterID,
	}
	snaps := n.stores.snaps.(guardedSnaps)
	snaps.opened = func(m *raft.SnapshotMeta) { n.replica.noteConf(m.Configuration, m.ConfigurationIndex) }
	n.stores.snaps = snaps
	return n, nil
}

// Start runs the node: it forms, finds or rejoins its cluster in the background
// and calls f as leadership comes and goes. It is called once; where it fails,
// the node has been shut down.
func (n *Node) Start(f Follower) error {
	n.log.Info("starting", "server", n.id.self.String(), "cluster", n.cfg.ClusterName, "cluster_id", n.id.clusterID().String(), "peer_addr", n.addr, "had_state", n.hadState)
	n.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.stream, MaxPool: 3, Timeout: n.cfg.PeerTimeout, Logger: newRaftLog(n.log),
	})
	r, err := n.startRaft()
	if err != nil {
		_ = n.Kill() // frees the files and the port; the first error says enough
		return err
	}
	n.lead = newLeadership(n, f)
	n.raft.Store(r)
	n.spawn(n.lead.run)
	n.spawn(func() { n.assemble(n.ctx) })
	n.spawn(n.keepClusterID)
	n.stream.start()
	return nil
}

// spawn runs f on a goroutine that Shutdown waits for; not at all once that has begun.
func (n *Node) spawn(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return false
	}
	n.wg.Go(f)
	return true
}

func (n *Node) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = n.id.self.id()
	c.HeartbeatTimeout, c.ElectionTimeout = n.cfg.HeartbeatTimeout, n.cfg.ElectionTimeout
	c.LeaderLeaseTimeout, c.CommitTimeout = n.cfg.LeaderLeaseTimeout, n.cfg.CommitTimeout
	c.SnapshotInterval, c.SnapshotThreshold, c.TrailingLogs = n.cfg.SnapshotInterval, n.cfg.SnapshotThreshold, n.cfg.TrailingLogs
	c.MaxAppendEntries = n.cfg.MaxAppendEntries
	c.BatchApplyCh = true
	c.ShutdownOnRemove = false // a removed node says so and waits; it does not vanish
	c.NotifyCh = n.notify
	c.Logger = newRaftLog(n.log)
	c.NoLegacyTelemetry = true
	return c
}

// startRaft calls raft.NewRaft on a goroutine of its own: a storage failure in it
// ends that goroutine, and a gap in the log makes it panic.
func (n *Node) startRaft() (*raft.Raft, error) {
	type outcome struct {
		r   *raft.Raft
		err error
	}
	res := make(chan outcome, 1)
	go func() {
		out := outcome{err: errors.New("storage failed")}
		defer func() {
			if p := recover(); p != nil {
				out = outcome{err: fmt.Errorf("data directory %s is damaged: %v; remove it and let the node rejoin the cluster", n.cfg.DataDir, p)}
			}
			res <- out
		}()
		g := n.stores.guard
		g.inRaft.Store(true)
		g.starting.Store(true)
		defer g.starting.Store(false)
		out.r, out.err = raft.NewRaft(n.raftConfig(), n.replica, n.stores.logs, n.stores.stable, n.stores.snaps,
			newPacedTransport(n.trans, n.cfg.HeartbeatTimeout))
	}()
	select {
	case out := <-res:
		if out.err != nil {
			if cause := n.failure(); cause != nil {
				return nil, cause
			}
			return nil, fmt.Errorf("start raft: %w", out.err)
		}
		return out.r, nil
	case <-n.failing:
		return nil, n.failure()
	}
}

// Table returns the node's lock table, read-only for callers.
func (n *Node) Table() *fsm.Table { return n.table }

// Failed delivers at most one error: the storage or the state machine failed,
// the node has left the cluster's traffic, and the process must exit.
func (n *Node) Failed() <-chan error { return n.failed }

// fail takes the node out for good. It does not block.
func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.lastFailure.Store(&err)
		close(n.failing)
		n.failed <- err
		if n.stream != nil {
			// Raft's heartbeats run on other goroutines than the one that failed: without
			// this a leader with a dead disk would stay leader.
			go n.stream.fence()
		}
	})
}

// failure returns the fatal error, nil if there was none.
func (n *Node) failure() error {
	if p := n.lastFailure.Load(); p != nil {
		return *p
	}
	return nil
}

func (n *Node) hasFailed() bool {
	select {
	case <-n.failing:
		return true
	default:
		return false
	}
}

// fatalEntry is called on raft's FSM goroutine for a log entry that this version
// cannot apply. The goroutine ends: no later entry may be applied over the gap.
func (n *Node) fatalEntry(err error) {
	n.fail(err)
	runtime.Goexit()
}

// noteClusterID wakes keepClusterID once the table knows the cluster's id. It
// runs after each batch of entries and must cost nothing.
func (n *Node) noteClusterID() {
	if n.adopted.Load() || n.table.ClusterID() == (clusterID{}) {
		return
	}
	select {
	case n.adoptCh <- struct{}{}:
	default:
	}
}

// keepClusterID writes the cluster's id into node.json when it is first applied,
// and refuses a log that is of another cluster than the data directory.
func (n *Node) keepClusterID() {
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.adoptCh:
		}
		cid := clusterID(n.table.ClusterID())
		before := n.id.clusterID()
		err := n.stores.guard.do("write "+identityFile, n.cfg.StoreTimeout, func() error { return n.id.adopt(cid) })
		if err != nil {
			n.fail(err)
			return
		}
		n.adopted.Store(true)
		if before != cid {
			n.log.Info("this node is of cluster", "cluster_id", cid.String())
		}
	}
}
