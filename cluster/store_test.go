package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// usedDir leaves a data directory behind that has a log of some pages.
func usedDir(t *testing.T) *testNode {
	t.Helper()
	c := newCluster(t, 1).start()
	tn := c.leader()
	for i := range 60 {
		c.grant(fmt.Sprintf("%0400d", i))
	}
	eventually(t, "cluster id stored", func() bool { return tn.n.Status().ClusterID != "" })
	tn.kill()
	return tn
}

// refuses opens the directory and wants one line that contains all of want.
func (tn *testNode) refuses(want ...string) {
	tn.t.Helper()
	err := tn.tryStart()
	if err == nil {
		tn.kill()
		tn.t.Fatalf("opened, want an error with %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			tn.t.Fatalf("error %q lacks %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "goroutine") {
		tn.t.Fatalf("not one line: %q", err)
	}
}

func TestDataDirRefusals(t *testing.T) {
	t.Run("in use", func(t *testing.T) {
		c := newCluster(t, 1).start()
		second := &testNode{t: t, cfg: c.nodes[0].cfg}
		second.refuses("in use by another process", second.cfg.DataDir)
	})
	t.Run("bolt file in use", func(t *testing.T) {
		tn := usedDir(t)
		b, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(tn.cfg.DataDir, boltName), BoltOptions: boltOptions()})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		tn.refuses("in use by another process")
	})
	t.Run("node id", func(t *testing.T) {
		tn := usedDir(t)
		tn.cfg.NodeID, tn.cfg.Peers = "n7", []Peer{{ID: "n7", Addr: tn.cfg.PeerAddr}}
		tn.refuses("belongs to node n1, not to n7", tn.cfg.DataDir)
	})
	t.Run("cluster name", func(t *testing.T) {
		tn := usedDir(t)
		tn.cfg.ClusterName = "other"
		tn.refuses("belongs to cluster test, not to other")
	})
	t.Run("cluster id", func(t *testing.T) {
		tn := usedDir(t)
		path := filepath.Join(tn.cfg.DataDir, identityFile)
		raw, _ := os.ReadFile(path)
		doc := string(raw)
		at := strings.Index(doc, `"cluster_id": "`) + len(`"cluster_id": "`)
		doc = doc[:at] + strings.Repeat("0", 31) + "1" + doc[at+32:]
		if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
		tn.start()
		if err := <-tn.n.Failed(); !strings.Contains(err.Error(), "mixed with another cluster") {
			t.Fatal(err)
		}
	})
	t.Run("identity damaged", func(t *testing.T) {
		tn := usedDir(t)
		if err := os.WriteFile(filepath.Join(tn.cfg.DataDir, identityFile), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		tn.refuses(identityFile, "damaged")
	})
	t.Run("identity missing", func(t *testing.T) {
		tn := usedDir(t)
		if err := os.Remove(filepath.Join(tn.cfg.DataDir, identityFile)); err != nil {
			t.Fatal(err)
		}
		tn.refuses("has state but no " + identityFile)
	})
	t.Run("bolt file missing", func(t *testing.T) {
		tn := usedDir(t)
		if err := os.Remove(filepath.Join(tn.cfg.DataDir, boltName)); err != nil {
			t.Fatal(err)
		}
		tn.refuses(boltName, "missing", "rejoin")
	})
	t.Run("not a directory", func(t *testing.T) {
		tn := newCluster(t, 1).nodes[0]
		tn.cfg.DataDir = filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(tn.cfg.DataDir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		tn.refuses("not a directory")
	})
}

func TestLeftoversOfAnInterruptedCreation(t *testing.T) {
	tn := newCluster(t, 1).nodes[0]
	if err := os.MkdirAll(filepath.Join(tn.cfg.DataDir, snapshotsName, "1-2-3.tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"raft.db.tmp", "node.json.tmp", "snapshots/1-2-3.tmp/state.bin"} {
		if err := os.WriteFile(filepath.Join(tn.cfg.DataDir, f), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The store was created, the identity not yet.
	if err := createBolt(filepath.Join(tn.cfg.DataDir, boltName)); err != nil {
		t.Fatal(err)
	}
	tn.start()
	eventually(t, "it leads", func() bool { return tn.n.Ready() == nil })
	if left, _ := filepath.Glob(filepath.Join(tn.cfg.DataDir, "snapshots", "*.tmp")); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
}

// A bootstrap that was cut between raft's term and its first log entry is done again.
func TestInterruptedBootstrap(t *testing.T) {
	tn := newCluster(t, 1).nodes[0]
	tn.opt.hook = failAt("append to the log", 1, false, errors.New("power cut"))
	tn.start()
	<-tn.n.Failed()
	tn.kill()
	tn.opt.hook = nil
	tn.start()
	eventually(t, "it leads", func() bool { return tn.n.Ready() == nil })
}
