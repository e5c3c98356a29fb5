package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
)

// snapshotOften makes every few entries a snapshot with nothing kept behind it.
func snapshotOften(c *testCluster) {
	for _, tn := range c.nodes {
		tn.cfg.SnapshotInterval, tn.cfg.SnapshotThreshold, tn.cfg.TrailingLogs = 100*time.Millisecond, 8, 1
	}
}

func snapshotsOf(t *testing.T, tn *testNode) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(tn.cfg.DataDir, snapshotsName, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var whole []string
	for _, s := range all {
		if !strings.HasSuffix(s, tmpSuffix) {
			whole = append(whole, s)
		}
	}
	return whole
}

// A node that is behind the leader's log, wiped or not, is brought up by a
// snapshot, configuration and all.
func TestSnapshotBringsANodeUp(t *testing.T) {
	for _, wipe := range []bool{false, true} {
		t.Run(fmt.Sprintf("wiped=%v", wipe), func(t *testing.T) {
			c := newCluster(t, 3)
			snapshotOften(c)
			c.start()
			c.grant("before")
			tn := c.follower()
			tn.kill()
			lead := c.leader()
			for i := range 40 {
				c.grant(fmt.Sprint("k", i))
			}
			eventually(t, "the log to be compacted", func() bool { return len(snapshotsOf(t, lead)) > 0 })
			if wipe {
				tn.wipe()
			}
			tn.start()
			eventually(t, "all grants", func() bool { return tn.n.Table().Len() == 41 })
			c.voters(c.nodes...)
			eventually(t, "ready", func() bool { return tn.n.Ready() == nil })
			if got, want := tn.n.Table().Hash(), c.leader().n.Table().Hash(); got != want {
				eventually(t, "the same state", func() bool { return tn.n.Table().Hash() == c.leader().n.Table().Hash() })
			}
			// It can lead and change the membership with what it learnt from the snapshot.
			if _, index := tn.n.replica.committedConf(); index == 0 {
				t.Fatal("the configuration's index is not known")
			}
		})
	}
}

func TestDamagedSnapshots(t *testing.T) {
	c := newCluster(t, 1)
	snapshotOften(c)
	c.nodes[0].cfg.TrailingLogs = 1000
	c.start()
	tn := c.nodes[0]
	for i := 0; len(snapshotsOf(t, tn)) < 2; i++ {
		c.grant(fmt.Sprint("k", i))
	}
	want := tn.n.Table().Len()
	tn.kill()
	snaps := snapshotsOf(t, tn)
	newest := snaps[len(snaps)-1]
	flip := func(path string) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 0xff
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flip(filepath.Join(newest, "state.bin"))
	tn.start()
	eventually(t, "the older snapshot and the log to be used", func() bool { return tn.n.Table().Len() == want && tn.n.Ready() == nil })
	tn.kill()
	for _, s := range snapshotsOf(t, tn) {
		flip(filepath.Join(s, "state.bin"))
	}
	// The newest may have been replaced by a whole one meanwhile; all are damaged now, or twice, i.e. whole.
	if err := os.WriteFile(filepath.Join(snapshotsOf(t, tn)[0], "meta.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	tn.refuses("meta.json", "damaged")
}

// Without its snapshot a compacted log has a gap: one line, no panic.
func TestLogWithoutItsSnapshot(t *testing.T) {
	c := newCluster(t, 1)
	snapshotOften(c)
	c.start()
	tn := c.nodes[0]
	for i := 0; len(snapshotsOf(t, tn)) < 1; i++ {
		c.grant(fmt.Sprint("k", i))
	}
	tn.kill()
	if err := os.RemoveAll(filepath.Join(tn.cfg.DataDir, snapshotsName)); err != nil {
		t.Fatal(err)
	}
	tn.refuses("damaged", "rejoin", "log not found")
}

func TestSnapshotWriteErrorEndsTheNode(t *testing.T) {
	for _, op := range []string{"create a snapshot", "write a snapshot", "finish a snapshot"} {
		t.Run(op, func(t *testing.T) {
			c := newCluster(t, 1)
			snapshotOften(c)
			tn := c.nodes[0]
			tn.opt.hook = failAt(op, 1, false, errors.New("no space left on device"))
			c.start()
			tn.proposeUntilFailed("k")
			if err := <-tn.n.Failed(); !strings.Contains(err.Error(), op) {
				t.Fatal(err)
			}
		})
	}
}

// An entry that this version cannot read stops the node, and nothing after it is applied.
func TestUnreadableEntryStopsTheNode(t *testing.T) {
	c := newCluster(t, 1).start()
	c.grant("a")
	tn := c.leader()
	tn.n.raft.Load().Apply([]byte{0xfe, 1, 2, 3}, time.Second)
	err := failedWithin(t, tn, 5*time.Second)
	if !errors.Is(err, fsm.ErrVersion) || !strings.Contains(err.Error(), "cannot be executed") {
		t.Fatal(err)
	}
	tn.kill()
	tn.start()
	if err := failedWithin(t, tn, 5*time.Second); !errors.Is(err, fsm.ErrVersion) {
		t.Fatal(err)
	}
}

// The disk fails at the Nth call counted from Open: an error of Open or Start, or
// a failed node, never a panic or a node that goes on.
func TestStoreFailsWhileStarting(t *testing.T) {
	for _, used := range []bool{false, true} {
		tn := newCluster(t, 1).nodes[0]
		if used {
			tn = usedDir(t)
		}
		for nth := uint64(1); nth < 30; nth++ {
			dir := tn.cfg.DataDir
			if !used {
				tn.cfg.DataDir = filepath.Join(t.TempDir(), "d")
			}
			tn.opt.hook = func(_ string, n uint64, after bool) error {
				if n == nth && !after {
					return errors.New("fault")
				}
				return nil
			}
			if err := tn.tryStart(); err == nil {
				tn.proposeUntilFailed(fmt.Sprint("k", nth)) // the start may take fewer calls
				err = failedWithin(t, tn, 10*time.Second)
				if !strings.Contains(err.Error(), "fault") {
					t.Fatal(err)
				}
				tn.kill()
			} else if !strings.Contains(err.Error(), "fault") {
				t.Fatalf("operation %d: %v", nth, err)
			}
			if used {
				tn.cfg.DataDir = dir
			}
		}
	}
}
