package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Peer is one line of the static peer list: the same list is given to every
// node of a cluster.
type Peer struct {
	ID   string // node id, unique in the list
	Addr string // host:port of its peer port; a name is resolved anew on each dial
}

// Config is what a Node is opened with. DefaultConfig fills every bound and
// timing; the identity and address fields have no default.
type Config struct {
	NodeID      string // 1..64 of letters, digits, '-', '_', '.'
	DataDir     string // created if missing; owned by this node alone
	ClusterName string // same rule as NodeID; peers of another name are turned away

	PeerAddr            string // host:port to listen on for peers
	AdvertisePeerAddr   string // host:port peers dial; empty = this node's entry in Peers
	AdvertiseClientAddr string // put into the log by a leader, for redirects; may be empty
	AdvertiseAdminAddr  string // put into the log by a leader; may be empty

	// PeerListener, if not nil, is used instead of listening on PeerAddr. The
	// node closes it.
	PeerListener net.Listener

	Peers []Peer // 1..9 entries, this node among them

	HeartbeatTimeout   time.Duration // silence of the leader before a follower campaigns; 20 ms..1 min
	ElectionTimeout    time.Duration // >= HeartbeatTimeout
	LeaderLeaseTimeout time.Duration // a leader without quorum for so long steps down; <= HeartbeatTimeout
	CommitTimeout      time.Duration // an idle leader tells its commit index this often; 1 ms..HeartbeatTimeout

	SnapshotInterval  time.Duration // how often to look whether a snapshot is due; >= 100 ms
	SnapshotThreshold uint64        // entries since the last snapshot that make one due; >= 1
	TrailingLogs      uint64        // entries kept behind a snapshot for slow followers; >= 1
	MaxAppendEntries  int           // entries per replication message; 1..1024

	StoreTimeout   time.Duration // a storage call that takes longer ends the node; 100 ms..1 min
	ProposeTimeout time.Duration // after it a proposal's outcome is reported as unknown; >= 100 ms
	PeerTimeout    time.Duration // I/O deadline of one message to a peer; >= ElectionTimeout
	JoinTimeout    time.Duration // bound of one step of replacing a node that lost its disk; >= 1 s

	MaxPeerConns int // connections on the peer port, both directions; 16..4096

	Logger *slog.Logger // nil = slog.Default()
}

// maxPeers bounds the peer list: more voters only make each commit slower.
const maxPeers = 9

// DefaultConfig returns the timings and bounds a node should run with. Fail-over
// after a kill is well under a second with them on a LAN.
func DefaultConfig() Config {
	return Config{
		ClusterName:        "holdfast",
		HeartbeatTimeout:   250 * time.Millisecond,
		ElectionTimeout:    250 * time.Millisecond,
		LeaderLeaseTimeout: 250 * time.Millisecond,
		CommitTimeout:      200 * time.Millisecond,
		SnapshotInterval:   10 * time.Second,
		SnapshotThreshold:  64 << 10,
		TrailingLogs:       64 << 10,
		MaxAppendEntries:   256,
		StoreTimeout:       3 * time.Second,
		ProposeTimeout:     10 * time.Second,
		PeerTimeout:        2 * time.Second,
		JoinTimeout:        10 * time.Second,
		MaxPeerConns:       128,
	}
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)

// Validate reports every field that is wrong, each with the fix.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if !nameRule.MatchString(c.NodeID) {
		bad("NodeID %q: use 1 to 64 letters, digits, '-', '_' or '.', starting and ending with a letter or digit", c.NodeID)
	}
	if !nameRule.MatchString(c.ClusterName) {
		bad("ClusterName %q: use 1 to 64 letters, digits, '-', '_' or '.', starting and ending with a letter or digit", c.ClusterName)
	}
	if c.DataDir == "" {
		bad("DataDir is empty: name a directory that this node alone uses")
	}
	if c.PeerListener == nil {
		if err := checkAddr(c.PeerAddr, false); err != nil {
			bad("PeerAddr %q: %v", c.PeerAddr, err)
		}
	}
	for _, a := range []struct{ field, addr string }{
		{"AdvertisePeerAddr", c.AdvertisePeerAddr}, {"AdvertiseClientAddr", c.AdvertiseClientAddr}, {"AdvertiseAdminAddr", c.AdvertiseAdminAddr},
	} {
		if a.addr == "" {
			continue
		}
		if err := checkAddr(a.addr, true); err != nil {
			bad("%s %q: %v", a.field, a.addr, err)
		}
	}
	errs = append(errs, c.validatePeers()...)
	errs = append(errs, c.validateTimings()...)
	return errors.Join(errs...)
}

func (c Config) validatePeers() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Peers) == 0 || len(c.Peers) > maxPeers {
		bad("Peers has %d entries: list every node of the cluster, this one too, 1 to %d as id=host:port", len(c.Peers), maxPeers)
	}
	ids, addrs := map[string]bool{}, map[string]string{}
	for _, p := range c.Peers {
		if !nameRule.MatchString(p.ID) {
			bad("Peers: node id %q: use 1 to 64 letters, digits, '-', '_' or '.'", p.ID)
		}
		if ids[p.ID] {
			bad("Peers: node id %q is listed twice: give each node its own id", p.ID)
		}
		ids[p.ID] = true
		if err := checkAddr(p.Addr, true); err != nil {
			bad("Peers: address %q of %s: %v", p.Addr, p.ID, err)
		}
		if other, ok := addrs[p.Addr]; ok {
			bad("Peers: %s and %s have the same address %s: give each node its own", other, p.ID, p.Addr)
		}
		addrs[p.Addr] = p.ID
	}
	switch own, ok := c.peer(c.NodeID); {
	case !ok:
		bad("Peers does not contain this node (%s): add it, the list is the same on every node", c.NodeID)
	case c.AdvertisePeerAddr != "" && c.AdvertisePeerAddr != own.Addr:
		bad("AdvertisePeerAddr %s differs from this node's address in Peers, %s: make them the same", c.AdvertisePeerAddr, own.Addr)
	}
	return errs
}

func (c Config) validateTimings() (errs []error) {
	within := func(field string, v, lo, hi time.Duration) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("%s is %v: use %v to %v", field, v, lo, hi))
		}
	}
	within("HeartbeatTimeout", c.HeartbeatTimeout, 20*time.Millisecond, time.Minute)
	within("ElectionTimeout", c.ElectionTimeout, c.HeartbeatTimeout, 5*time.Minute)
	within("LeaderLeaseTimeout", c.LeaderLeaseTimeout, 10*time.Millisecond, c.HeartbeatTimeout)
	within("CommitTimeout", c.CommitTimeout, time.Millisecond, c.HeartbeatTimeout)
	within("SnapshotInterval", c.SnapshotInterval, 100*time.Millisecond, 24*time.Hour)
	within("StoreTimeout", c.StoreTimeout, 100*time.Millisecond, time.Minute)
	within("ProposeTimeout", c.ProposeTimeout, 100*time.Millisecond, 10*time.Minute)
	within("PeerTimeout", c.PeerTimeout, c.ElectionTimeout, 5*time.Minute)
	within("JoinTimeout", c.JoinTimeout, time.Second, 10*time.Minute)
	count := func(field string, v, lo, hi uint64) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("%s is %d: use %d to %d", field, v, lo, hi))
		}
	}
	count("SnapshotThreshold", c.SnapshotThreshold, 1, 1<<32)
	count("TrailingLogs", c.TrailingLogs, 1, 1<<32)
	count("MaxAppendEntries", uint64(max(c.MaxAppendEntries, 0)), 1, 1024)
	count("MaxPeerConns", uint64(max(c.MaxPeerConns, 0)), 16, 4096)
	return errs
}

// checkAddr accepts host:port. An address for others to dial needs a host that
// means something on their side.
func checkAddr(addr string, dialled bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("use host:port")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("the port must be a number from 1 to 65535")
	} else if dialled && n == 0 {
		return errors.New("port 0 cannot be dialled: name the port")
	}
	if len(addr) > 255 {
		return errors.New("longer than 255 bytes")
	}
	if !dialled {
		return nil
	}
	if host == "" {
		return errors.New("the host is missing: name one that the other nodes can reach")
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return errors.New("no node can dial this address: name one that the other nodes can reach")
	}
	return nil
}

func (c Config) peer(id string) (Peer, bool) {
	i := slices.IndexFunc(c.Peers, func(p Peer) bool { return p.ID == id })
	if i < 0 {
		return Peer{}, false
	}
	return c.Peers[i], true
}

// founder is the one node that may bootstrap: the lowest id of the list.
func (c Config) founder() string {
	return slices.MinFunc(c.Peers, func(a, b Peer) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	}).ID
}

// peerIDs returns the ids of the list, sorted.
func (c Config) peerIDs() []string {
	ids := make([]string, 0, len(c.Peers))
	for _, p := range c.Peers {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	return ids
}
