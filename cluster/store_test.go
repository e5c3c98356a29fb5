package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/holdfast-lock/holdfast/fsm"
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

func TestDamagedBoltFile(t *testing.T) {
	base := usedDir(t)
	path := filepath.Join(base.cfg.DataDir, boltName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damage := map[string]func([]byte) []byte{
		"empty":     func(b []byte) []byte { return nil },
		"garbage":   func(b []byte) []byte { return []byte(strings.Repeat("garbage!", 4096)) },
		"half":      func(b []byte) []byte { return b[:len(b)/2] },
		"one page":  func(b []byte) []byte { return b[:4096] },
		"few bytes": func(b []byte) []byte { return b[:100] },
		"metas": func(b []byte) []byte {
			for i := 16; i < 80; i++ {
				b[i] ^= 0xff
				b[4096+i] ^= 0xff
			}
			return b
		},
		"zeroed middle": func(b []byte) []byte { clear(b[8192 : len(b)/2]); return b },
		"flipped middle": func(b []byte) []byte {
			for i := 8192; i < len(b); i += 3 {
				b[i] ^= 0xff
			}
			return b
		},
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, f(append([]byte(nil), good...)), 0o600); err != nil {
				t.Fatal(err)
			}
			base.t = t
			base.refuses(path, "damaged", "rejoin")
		})
	}
}

// Whatever single byte of the store is altered, the node starts with the very
// same state or refuses in one line; it never panics and never serves another state.
func TestEveryAlteredByteIsNoticedOrHarmless(t *testing.T) {
	base := usedDir(t)
	path := filepath.Join(base.cfg.DataDir, boltName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	step := 997
	if testing.Short() {
		step = 9973
	}
	noticed, harmless := 0, 0
	for at := 0; at < len(good); at += step {
		bad := append([]byte(nil), good...)
		bad[at] ^= 0x5a
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := readAll(base.cfg.DataDir, path); err != nil {
			noticed++
			continue
		}
		harmless++
	}
	t.Logf("%d bytes: %d noticed, %d in places that are not in use", noticed+harmless, noticed, harmless)
	if noticed == 0 {
		t.Error("no alteration was noticed")
	}
}

// readAll opens the store as a node would and reads everything in it.
func readAll(dir, path string) error {
	var fault atomic.Pointer[error]
	g := &guard{timeout: 10 * time.Second, fail: func(err error) { fault.Store(&err) }}
	s := &stores{dir: dir, guard: g}
	if err := s.openBolt(true); err != nil {
		return err
	}
	defer s.bolt.Close()
	log := guardedLog{g, &sealedStore{s.bolt}}
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	tab := fsm.NewTable()
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := log.GetLog(i, &l); err != nil {
			return err
		}
		if l.Type == raft.LogCommand {
			if res := tab.Apply(l.Index, l.Data); res.Err != nil {
				return fmt.Errorf("undetected: %w", res.Err)
			}
		}
	}
	st := guardedStable{g, &sealedStore{s.bolt}}
	for _, k := range [][]byte{keyCurrentTerm, keyLastVoteTerm} {
		if _, err := st.GetUint64(k); err != nil {
			return err
		}
	}
	if tab.Len() != 60 {
		return fmt.Errorf("a grant is missing: %d", tab.Len())
	}
	return nil
}

func TestSealedStoreNoticesAlteration(t *testing.T) {
	b, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(t.TempDir(), "x.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := &sealedStore{b}
	in := &raft.Log{Index: 1, Term: 2, Type: raft.LogCommand, Data: []byte("data")}
	if err := s.StoreLogs([]*raft.Log{in}); err != nil {
		t.Fatal(err)
	}
	if string(in.Data) != "data" {
		t.Fatal("the caller's entry was changed")
	}
	var out raft.Log
	if err := s.GetLog(1, &out); err != nil || string(out.Data) != "data" || out.Term != 2 {
		t.Fatalf("%+v %v", out, err)
	}
	if err := s.GetLog(2, &out); err != raft.ErrLogNotFound {
		t.Fatal(err)
	}
	if err := b.GetLog(1, &out); err != nil {
		t.Fatal(err)
	}
	out.Term = 3
	if err := b.StoreLog(&out); err != nil {
		t.Fatal(err)
	}
	if err := s.GetLog(1, &out); !errors.Is(err, errSeal) {
		t.Fatal(err)
	}
	if err := s.SetUint64(keyCurrentTerm, 9); err != nil {
		t.Fatal(err)
	}
	if err := b.SetUint64(keyLastVoteTerm, 9); err != nil {
		t.Fatal(err)
	}
	if v, err := s.GetUint64(keyCurrentTerm); err != nil || v != 9 {
		t.Fatal(v, err)
	}
	if _, err := s.GetUint64(keyLastVoteTerm); !errors.Is(err, errSeal) {
		t.Fatal(err)
	}
	if _, err := s.GetUint64([]byte("none")); err == nil || err.Error() != "not found" {
		t.Fatal(err)
	}
}
