package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-lock/holdfast/fsm"
)

func TestValidate(t *testing.T) {
	good := DefaultConfig()
	good.NodeID, good.DataDir, good.PeerAddr = "n1", "/tmp/x", ":7421"
	good.Peers = []Peer{{"n1", "a:7421"}, {"n2", "b:7421"}, {"n3", "c:7421"}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		want string
		edit func(*Config)
	}{
		{"NodeID", func(c *Config) { c.NodeID = "" }},
		{"NodeID", func(c *Config) { c.NodeID = "n 1" }},
		{"NodeID", func(c *Config) { c.NodeID = strings.Repeat("n", 65) }},
		{"ClusterName", func(c *Config) { c.ClusterName = "a@b" }},
		{"DataDir", func(c *Config) { c.DataDir = "" }},
		{"PeerAddr", func(c *Config) { c.PeerAddr = "7421" }},
		{"PeerAddr", func(c *Config) { c.PeerAddr = "x:http" }},
		{"AdvertisePeerAddr", func(c *Config) { c.AdvertisePeerAddr = "0.0.0.0:7421" }},
		{"AdvertisePeerAddr", func(c *Config) { c.AdvertisePeerAddr = "other:7421" }},
		{"AdvertiseClientAddr", func(c *Config) { c.AdvertiseClientAddr = ":7420" }},
		{"AdvertiseAdminAddr", func(c *Config) { c.AdvertiseAdminAddr = "[::]:7422" }},
		{"Peers", func(c *Config) { c.Peers = nil }},
		{"does not contain this node", func(c *Config) { c.Peers = c.Peers[1:] }},
		{"listed twice", func(c *Config) { c.Peers = append(c.Peers, Peer{"n1", "d:1"}) }},
		{"same address", func(c *Config) { c.Peers = append(c.Peers, Peer{"n4", "a:7421"}) }},
		{"port 0", func(c *Config) { c.Peers[2].Addr = "c:0" }},
		{"Peers", func(c *Config) { c.Peers = append(c.Peers, make([]Peer, 8)...) }},
		{"HeartbeatTimeout", func(c *Config) { c.HeartbeatTimeout = time.Millisecond }},
		{"ElectionTimeout", func(c *Config) { c.ElectionTimeout = c.HeartbeatTimeout - 1 }},
		{"LeaderLeaseTimeout", func(c *Config) { c.LeaderLeaseTimeout = c.HeartbeatTimeout + 1 }},
		{"CommitTimeout", func(c *Config) { c.CommitTimeout = 0 }},
		{"SnapshotInterval", func(c *Config) { c.SnapshotInterval = 0 }},
		{"SnapshotThreshold", func(c *Config) { c.SnapshotThreshold = 0 }},
		{"TrailingLogs", func(c *Config) { c.TrailingLogs = 0 }},
		{"MaxAppendEntries", func(c *Config) { c.MaxAppendEntries = -1 }},
		{"StoreTimeout", func(c *Config) { c.StoreTimeout = 0 }},
		{"ProposeTimeout", func(c *Config) { c.ProposeTimeout = 0 }},
		{"PeerTimeout", func(c *Config) { c.PeerTimeout = 0 }},
		{"JoinTimeout", func(c *Config) { c.JoinTimeout = 0 }},
		{"MaxPeerConns", func(c *Config) { c.MaxPeerConns = 1 }},
	} {
		c := good
		c.Peers = append([]Peer(nil), good.Peers...)
		tc.edit(&c)
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("want an error about %q, got %v", tc.want, err)
		}
	}
	var n Node
	n.cfg, n.id, n.notify = good, &identity{self: serverName{"n1", 1}}, nil
	n.log = newCluster(t, 1).nodes[0].cfg.Logger
	if err := raft.ValidateConfig(n.raftConfig()); err != nil {
		t.Errorf("raft refuses the defaults: %v", err)
	}
}

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		err   error
		index uint64
		want  error
	}{
		{raft.ErrNotLeader, 0, fsm.ErrNotExecuted},
		{raft.ErrLeadershipTransferInProgress, 0, fsm.ErrNotExecuted},
		{raft.ErrEnqueueTimeout, 0, fsm.ErrNotExecuted},
		{raft.ErrRaftShutdown, 0, fsm.ErrNotExecuted},
		{raft.ErrRaftShutdown, 7, fsm.ErrUnknown},
		{raft.ErrLeadershipLost, 7, fsm.ErrUnknown},
		{raft.ErrAbortedByRestore, 7, fsm.ErrUnknown},
		{errors.New("disk"), 7, fsm.ErrUnknown},
	} {
		if got := classify(tc.err, tc.index); !errors.Is(got, tc.want) || !errors.Is(got, tc.err) {
			t.Errorf("%v at %d: %v", tc.err, tc.index, got)
		}
	}
}

func TestServerNames(t *testing.T) {
	name := serverName{node: "a.b-c", inc: 0x00ff}
	id := name.id()
	if got, err := parseServerID(id); err != nil || got != name {
		t.Fatal(got, err)
	}
	if got, hp, err := parseServerAddr(name.at("h:1")); err != nil || got != name || hp != "h:1" {
		t.Fatal(got, hp, err)
	}
	for _, bad := range []raft.ServerID{"", "n1", ".0000000000000001", "n1.1", "n1.zzzzzzzzzzzzzzzz"} {
		if _, err := parseServerID(bad); err == nil {
			t.Errorf("%q parsed", bad)
		}
	}
}
