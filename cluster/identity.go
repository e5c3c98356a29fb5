package cluster

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// serverName is who a raft server is: a node id and the incarnation of its data
// directory. A node that lost its disk has a new incarnation, so it can never
// speak, and above all never vote, as the server it was.
type serverName struct {
	node string
	inc  uint64 // 0 = any (only in a probe's expectation)
}

func (s serverName) id() raft.ServerID { return raft.ServerID(s.String()) }

func (s serverName) String() string { return fmt.Sprintf("%s.%016x", s.node, s.inc) }

// at is the raft address: it carries the name, so that a dialler always knows
// whom it must reach.
func (s serverName) at(hostport string) raft.ServerAddress {
	return raft.ServerAddress(s.String() + "@" + hostport)
}

func parseServerID(id raft.ServerID) (serverName, error) {
	i := strings.LastIndexByte(string(id), '.')
	if i <= 0 || len(id)-i-1 != 16 {
		return serverName{}, fmt.Errorf("server id %q is not of the form node.incarnation", string(id))
	}
	raw, err := hex.DecodeString(string(id[i+1:]))
	if err != nil {
		return serverName{}, fmt.Errorf("server id %q: %w", string(id), err)
	}
	return serverName{node: string(id[:i]), inc: binary.BigEndian.Uint64(raw)}, nil
}

func parseServerAddr(addr raft.ServerAddress) (serverName, string, error) {
	id, hostport, ok := strings.Cut(string(addr), "@")
	if !ok {
		return serverName{}, "", fmt.Errorf("server address %q is not of the form node.incarnation@host:port", string(addr))
	}
	name, err := parseServerID(raft.ServerID(id))
	return name, hostport, err
}

// clusterID is the random id of a cluster; zero = not yet known.
type clusterID [16]byte

func (c clusterID) known() bool    { return c != clusterID{} }
func (c clusterID) String() string { return hex.EncodeToString(c[:]) }

func newClusterID() (id clusterID) {
	// crypto/rand.Read never fails: it ends the process where no randomness is to be had.
	_, _ = rand.Read(id[:])
	return id
}

func newIncarnation() uint64 {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:])
		if inc := binary.BigEndian.Uint64(b[:]); inc != 0 {
			return inc
		}
	}
}

const (
	identityFile   = "node.json"
	identityFormat = 1
)

// identityDoc is node.json. It is written when the data directory is created,
// after the empty store, and once more when the cluster's id becomes known.
type identityDoc struct {
	Format      int    `json:"format"`
	NodeID      string `json:"node_id"`
	Incarnation string `json:"incarnation"`
	ClusterName string `json:"cluster_name"`
	ClusterID   string `json:"cluster_id,omitempty"`
	Created     string `json:"created"`
}

// identity is the running form of node.json.
type identity struct {
	dir         string
	self        serverName
	clusterName string
	created     string

	mu      sync.Mutex
	cluster clusterID // guarded by mu
}

// loadIdentity reads node.json and refuses a directory of another node or cluster.
// It returns fs.ErrNotExist (errors.Is) when there is none.
func loadIdentity(cfg *Config) (*identity, error) {
	path := filepath.Join(cfg.DataDir, identityFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	doc, name, cid, err := decodeIdentity(raw)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged (%v): restore it, or remove the whole data directory and let the node rejoin", path, err)
	}
	if doc.NodeID != cfg.NodeID {
		return nil, fmt.Errorf("data directory %s belongs to node %s, not to %s: start it with that node id or name another directory", cfg.DataDir, doc.NodeID, cfg.NodeID)
	}
	if doc.ClusterName != cfg.ClusterName {
		return nil, fmt.Errorf("data directory %s belongs to cluster %s, not to %s: start it with that cluster name or name another directory", cfg.DataDir, doc.ClusterName, cfg.ClusterName)
	}
	return &identity{dir: cfg.DataDir, self: name, clusterName: doc.ClusterName, created: doc.Created, cluster: cid}, nil
}

func decodeIdentity(raw []byte) (doc identityDoc, name serverName, cid clusterID, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err = dec.Decode(&doc); err != nil {
		return doc, name, cid, err
	}
	if doc.Format != identityFormat {
		return doc, name, cid, fmt.Errorf("format %d, this version reads %d", doc.Format, identityFormat)
	}
	name, err = parseServerID(raft.ServerID(doc.NodeID + "." + doc.Incarnation))
	if err != nil {
		return doc, name, cid, err
	}
	if name.inc == 0 {
		return doc, name, cid, errors.New("no incarnation")
	}
	if doc.ClusterID != "" {
		b, err := hex.DecodeString(doc.ClusterID)
		if err != nil || len(b) != len(cid) {
			return doc, name, cid, fmt.Errorf("cluster id %q is not 32 hex digits", doc.ClusterID)
		}
		copy(cid[:], b)
	}
	return doc, name, cid, nil
}

// createIdentity draws a new incarnation and writes node.json.
func createIdentity(cfg *Config) (*identity, error) {
	id := &identity{
		dir:         cfg.DataDir,
		self:        serverName{node: cfg.NodeID, inc: newIncarnation()},
		clusterName: cfg.ClusterName,
		created:     time.Now().UTC().Format(time.RFC3339),
	}
	return id, id.write(clusterID{})
}

func (id *identity) write(cid clusterID) error {
	doc := identityDoc{
		Format: identityFormat, NodeID: id.self.node, Incarnation: fmt.Sprintf("%016x", id.self.inc),
		ClusterName: id.clusterName, Created: id.created,
	}
	if cid.known() {
		doc.ClusterID = cid.String()
	}
	raw, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return writeFileAtomic(filepath.Join(id.dir, identityFile), append(raw, '\n'))
}

// clusterID returns the cluster's id, zero while it is not known.
func (id *identity) clusterID() clusterID {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.cluster
}

// adopt stores the cluster's id the first time it is seen. It fails if the
// directory already belongs to another cluster.
func (id *identity) adopt(cid clusterID) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.cluster == cid:
		return nil
	case id.cluster.known():
		return fmt.Errorf("data directory %s belongs to cluster id %s but its log is of cluster id %s: it was mixed with another cluster's; remove it and let the node rejoin", id.dir, id.cluster, cid)
	}
	if err := id.write(cid); err != nil {
		return fmt.Errorf("write the cluster id: %w", err)
	}
	id.cluster = cid
	return nil
}

// writeFileAtomic replaces path so that a power cut leaves the old or the new
// content: write aside, sync, rename, sync the directory.
func writeFileAtomic(path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// makeDataDir creates the directory, durably, if it is missing.
func makeDataDir(dir string) error {
	if st, err := os.Stat(dir); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("data directory %s is not a directory", dir)
		}
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("create the data directory %s: %w", dir, err)
	}
	return nil
}
