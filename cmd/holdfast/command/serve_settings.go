package command

import (
	"net"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cluster"
	"github.com/holdfast-lock/holdfast/cluster/frontend"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

// serveConfig is everything that "holdfast serve" can be told.
type serveConfig struct {
	node     cluster.Config
	frontend frontend.Config

	file       string // path of the configuration file
	clientAddr string
	adminAddr  string
	peers      []string

	logFormat string
	logLevel  string
	grace     time.Duration
}

// serveSettings declares the settings of "holdfast serve" over c, which holds
// their defaults.
func serveSettings(c *serveConfig) *settings.Table {
	c.node, c.frontend = cluster.DefaultConfig(), frontend.DefaultConfig()
	// Nothing is offered to the network unless it is asked for.
	c.clientAddr, c.node.PeerAddr, c.adminAddr = "127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.1:7422"
	c.logFormat, c.logLevel = "text", "info"
	c.grace = 10 * time.Second

	t := settings.New()
	t.String(&c.file, "config", "file", "YAML file with any of the settings below").NoFile = true
	identitySettings(t, c)
	raftSettings(t, &c.node)
	boundSettings(t, c)
	t.Group("Process")
	t.Choice(&c.logFormat, "log-format", "How log lines are written to stderr", "text", "json")
	t.Choice(&c.logLevel, "log-level", "Least severity that is logged", "debug", "info", "warn", "error")
	t.Duration(&c.grace, "shutdown-grace", "How long a stop by SIGINT or SIGTERM may take: handing over leadership, answering clients, closing files")
	return t
}

func identitySettings(t *settings.Table, c *serveConfig) {
	t.Group("Identity and addresses")
	t.String(&c.node.NodeID, "node-id", "name", "Name of this node, one of those in --peers; required")
	t.String(&c.node.DataDir, "data-dir", "dir", "Directory for this node's state, used by it alone; required")
	t.String(&c.node.ClusterName, "cluster-name", "name", "Name of the cluster; nodes of another name are turned away")
	t.List(&c.peers, "peers", "id=host:port,...", "Every node of the cluster with its peer address, the same list on each node; a single one makes a cluster of one; required")
	t.String(&c.clientAddr, "client-addr", "host:port", "Address to listen on for clients")
	t.String(&c.node.PeerAddr, "peer-addr", "host:port", "Address to listen on for the other nodes")
	t.String(&c.adminAddr, "admin-addr", "host:port", "Address to listen on for HTTP: health, status, metrics")
	t.String(&c.node.AdvertiseClientAddr, "advertise-client-addr", "host:port", "Address that clients are redirected to; needed when --client-addr names no single host, otherwise the same as that")
	t.String(&c.node.AdvertisePeerAddr, "advertise-peer-addr", "host:port", "Address that the other nodes dial; this node's entry in --peers unless given")
	t.String(&c.node.AdvertiseAdminAddr, "advertise-admin-addr", "host:port", "Address of the HTTP side that other nodes' status names; the same as --admin-addr unless given")
}

func raftSettings(t *settings.Table, n *cluster.Config) {
	t.Group("Timings and bounds of replication")
	t.Duration(&n.HeartbeatTimeout, "heartbeat-timeout", "Silence of the leader after which a follower calls an election; raise it on a slow network")
	t.Duration(&n.ElectionTimeout, "election-timeout", "Time without a result after which an election is called again; at least --heartbeat-timeout")
	t.Duration(&n.LeaderLeaseTimeout, "leader-lease-timeout", "Time without a majority after which a leader steps down; at most --heartbeat-timeout")
	t.Duration(&n.CommitTimeout, "commit-timeout", "How often an idle leader tells how far the log is committed")
	t.Duration(&n.SnapshotInterval, "snapshot-interval", "How often to look whether a snapshot is due")
	t.Uint64(&n.SnapshotThreshold, "snapshot-threshold", "Log entries since the last snapshot that make one due")
	t.Uint64(&n.TrailingLogs, "trailing-logs", "Log entries kept behind a snapshot for nodes that lag")
	t.Int(&n.MaxAppendEntries, "max-append-entries", "Log entries in one replication message")
	t.Duration(&n.StoreTimeout, "store-timeout", "A disk operation that takes longer ends the process with exit code 70")
	t.Duration(&n.ProposeTimeout, "propose-timeout", "Time after which the fate of a log entry counts as unknown")
	t.Duration(&n.PeerTimeout, "peer-timeout", "Time for one message to another node; at least --election-timeout")
	t.Duration(&n.JoinTimeout, "join-timeout", "Time for one step of taking back a node that lost its disk")
	t.Int(&n.MaxPeerConns, "max-peer-conns", "Connections on the peer port")
}

func boundSettings(t *settings.Table, c *serveConfig) {
	f := &c.frontend
	t.Group("Capacity")
	t.Int(&f.MaxSessions, "max-sessions", "Client connections at once; one more is closed")
	t.Int(&f.MaxInflightPerSession, "max-inflight-per-session", "Unanswered requests of one connection; beyond it the server stops reading it")
	t.Int(&f.MaxWaitersPerKey, "max-waiters-per-key", "Acquires in the queue of one key; beyond it Busy")
	t.Int(&f.MaxWaiters, "max-waiters", "Acquires in all queues; beyond it Busy")
	t.Int(&f.MaxGrants, "max-grants", "Locks held at once; beyond it Busy")
	t.Int(&f.MaxQueue, "max-queue", "Operations that wait for a log entry; beyond it Busy")
	t.Int(&f.MaxBatchOps, "max-batch-ops", "Operations in one log entry")
	t.Int(&f.MaxEntriesInflight, "max-entries-inflight", "Log entries proposed and not yet applied")
	t.Int(&f.WriteBufferBytes, "write-buffer-bytes", "Replies a client may leave unread, in bytes; beyond it the connection is closed")
	t.Group("Client connections")
	t.Duration(&f.WriteTimeout, "write-timeout", "Time for one write to a client")
	t.Duration(&f.FirstFrameTimeout, "first-frame-timeout", "How long a new connection may say nothing")
	t.Duration(&f.FrameTimeout, "frame-timeout", "Time from the first byte of a request to its last")
	t.Duration(&f.CloseGrace, "close-grace", "How long a connection is kept open after a client was redirected, and again while it is drained")
	t.Duration(&f.TickInterval, "tick-interval", "How often the cluster clock is written to the log while locks are held and nothing else is; bounds how late a lease ends after a change of leader")
}

// finish derives what follows from other settings and validates the whole.
func (c *serveConfig) finish() error {
	if c.node.NodeID == "" {
		return configf("--node-id is missing: name this node, for example --node-id n1")
	}
	if c.node.DataDir == "" {
		return configf("--data-dir is missing: name a directory that this node alone uses, for example --data-dir /var/lib/holdfast")
	}
	if err := c.parsePeers(); err != nil {
		return err
	}
	for _, a := range []struct {
		flag, listen string
		advertise    *string
	}{
		{"client-addr", c.clientAddr, &c.node.AdvertiseClientAddr},
		{"admin-addr", c.adminAddr, &c.node.AdvertiseAdminAddr},
	} {
		if err := checkListen(a.flag, a.listen); err != nil {
			return err
		}
		if *a.advertise != "" {
			continue
		}
		if isWildcard(a.listen) {
			return configf("--%s %s listens on every address, so others cannot be told where this node is: set --advertise-%s to a host:port that they can reach", a.flag, a.listen, a.flag)
		}
		*a.advertise = a.listen
	}
	if err := checkListen("peer-addr", c.node.PeerAddr); err != nil {
		return err
	}
	if err := c.node.Validate(); err != nil {
		return configf("%s", flagNames(err.Error()))
	}
	if err := c.frontend.Validate(); err != nil {
		return configf("%v", err)
	}
	if c.grace < time.Second {
		return configf("--shutdown-grace is %v: use 1s or more", c.grace)
	}
	return nil
}

func (c *serveConfig) parsePeers() error {
	if len(c.peers) == 0 {
		return configf("--peers is missing: list every node of the cluster, this one too, for example --peers n1=10.0.0.1:7421,n2=10.0.0.2:7421,n3=10.0.0.3:7421")
	}
	c.node.Peers = nil
	for _, item := range c.peers {
		id, addr, ok := strings.Cut(item, "=")
		if !ok || id == "" || addr == "" {
			return configf("--peers: %q is not of the form id=host:port, as in n1=10.0.0.1:7421", item)
		}
		c.node.Peers = append(c.node.Peers, cluster.Peer{ID: strings.TrimSpace(id), Addr: strings.TrimSpace(addr)})
	}
	return nil
}

func checkListen(flag, addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return configf("--%s %q is not of the form host:port, as in 10.0.0.1:7420", flag, addr)
	}
	return nil
}

// isWildcard tells whether the address listens on all of the machine's addresses
// or on a port the system picks: neither is an address to give to others.
func isWildcard(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "" || port == "0" || ip != nil && ip.IsUnspecified()
}

var word = regexp.MustCompile(`\b[A-Z][A-Za-z]+\b`)

// flagNames turns the field names in an error of cluster.Config into flags.
func flagNames(text string) string {
	fields := reflect.TypeFor[cluster.Config]()
	text = word.ReplaceAllStringFunc(text, func(w string) string {
		if _, ok := fields.FieldByName(w); ok {
			return "--" + kebab(w)
		}
		return w
	})
	return strings.ReplaceAll(text, "\n", "\nholdfast: ")
}

// kebab writes NodeID as node-id.
func kebab(field string) string {
	var b strings.Builder
	for i := range len(field) {
		c := field[i]
		upper := c >= 'A' && c <= 'Z'
		if upper && i > 0 && (field[i-1] >= 'a' && field[i-1] <= 'z') {
			b.WriteByte('-')
		}
		b.WriteString(strings.ToLower(string(c)))
	}
	return b.String()
}
