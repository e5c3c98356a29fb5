package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

const (
	boltName      = "raft.db"
	snapshotsName = "snapshots"
	snapRetain    = 2
	logCacheSize  = 512 // entries kept in memory for followers that lag a little; a batch can be big
	tmpSuffix     = ".tmp"
	openTimeout   = time.Second
)

// raft's own keys in the stable store, needed to see an interrupted bootstrap.
var keyCurrentTerm, keyLastVoteTerm = []byte("CurrentTerm"), []byte("LastVoteTerm")

// stores is everything a node has on disk, under one lock and one guard.
type stores struct {
	dir    string
	lock   *dirLock
	bolt   *raftboltdb.BoltStore
	guard  *guard
	logs   raft.LogStore
	stable raft.StableStore
	snaps  raft.SnapshotStore
}

// openStores locks the data directory, checks it and opens it, creating it with a
// new identity if it is not there. The errors are one line each and name the file.
func openStores(cfg *Config, g *guard, lg hclog.Logger, log *slog.Logger) (s *stores, id *identity, err error) {
	if err := makeDataDir(cfg.DataDir); err != nil {
		return nil, nil, err
	}
	lock, err := lockDir(cfg.DataDir, openTimeout)
	if err != nil {
		return nil, nil, err
	}
	s = &stores{dir: cfg.DataDir, lock: lock, guard: g}
	if id, err = s.open(cfg, lg, log); err != nil {
		_ = s.closeNow()
		return nil, nil, err
	}
	return s, id, nil
}

func (s *stores) open(cfg *Config, lg hclog.Logger, log *slog.Logger) (*identity, error) {
	id, err := loadIdentity(cfg)
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := sweepTmp(cfg.DataDir, log); err != nil {
		return nil, err
	}
	if err := s.openBolt(exists); err != nil {
		return nil, err
	}
	if err := checkSnapshots(cfg.DataDir); err != nil {
		return nil, err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(cfg.DataDir, snapRetain, lg)
	if err != nil {
		return nil, fmt.Errorf("snapshots in %s: %w", cfg.DataDir, err)
	}
	g := s.guard
	sealed := &sealedStore{b: s.bolt}
	s.snaps = guardedSnaps{g: g, s: files}
	s.stable = guardedStable{g: g, s: sealed}
	if s.logs, err = raft.NewLogCache(logCacheSize, guardedLog{g: g, s: sealed}); err != nil {
		return nil, err
	}
	if exists {
		return id, nil
	}
	// An empty store without an identity is a creation that was cut short. One
	// with state had its identity taken away, and with it the proof of who voted.
	has, err := s.hasState()
	if err != nil {
		return nil, err
	}
	if has {
		return nil, fmt.Errorf("data directory %s has state but no %s: restore that file, or remove the whole directory and let the node rejoin", cfg.DataDir, identityFile)
	}
	if id, err = createIdentity(cfg); err != nil {
		return nil, fmt.Errorf("create the node's identity: %w", err)
	}
	return id, nil
}

// openBolt opens the bolt file, or creates it where the directory is new.
func (s *stores) openBolt(exists bool) (err error) {
	path := filepath.Join(s.dir, boltName)
	_, serr := os.Stat(path)
	switch {
	case errors.Is(serr, fs.ErrNotExist) && exists:
		return damaged(path, errors.New("it is missing"))
	case errors.Is(serr, fs.ErrNotExist):
		if err := createBolt(path); err != nil {
			return fmt.Errorf("create %s: %w", path, err)
		}
	case serr != nil:
		return serr
	}
	if err := checkBolt(path, "logs", "conf"); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%s: %w", path, err)
		}
		return damaged(path, err)
	}
	err = s.guard.call("open the store", func() (err error) {
		s.bolt, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions()})
		return err
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return inUse(s.dir)
	case err != nil:
		return damaged(path, err)
	}
	return nil
}

func boltOptions() *bbolt.Options {
	return &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, Timeout: openTimeout}
}

func damaged(path string, why error) error {
	return fmt.Errorf("%s is damaged: %w; remove the whole data directory and let the node rejoin the cluster, or restore it", path, why)
}

func inUse(dir string) error {
	return fmt.Errorf("data directory %s is in use by another process: stop it or name another directory", dir)
}

// createBolt makes the file aside and renames it, so that it is whole whenever
// it has its name.
func createBolt(path string) error {
	tmp := path + tmpSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err := raftboltdb.New(raftboltdb.Options{Path: tmp, BoltOptions: boltOptions()})
	if err != nil {
		return err
	}
	if err := b.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// sweepTmp removes what a crash left half-written. The directory is locked.
func sweepTmp(dir string, log *slog.Logger) error {
	for _, d := range []string{dir, filepath.Join(dir, snapshotsName)} {
		entries, err := os.ReadDir(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), tmpSuffix) {
				continue
			}
			path := filepath.Join(d, e.Name())
			log.Info("removing a leftover of an interrupted write", "path", path)
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSnapshots refuses a snapshot whose metadata cannot be read: raft would
// silently act as if it did not exist.
func checkSnapshots(dir string) error {
	base := filepath.Join(dir, snapshotsName)
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		path := filepath.Join(base, e.Name(), "meta.json")
		raw, err := os.ReadFile(path)
		if err != nil {
			return damaged(path, err)
		}
		var meta raft.SnapshotMeta
		if err := json.Unmarshal(raw, &meta); err != nil {
			return damaged(path, err)
		}
		if meta.Index == 0 || meta.ID != e.Name() || len(meta.Configuration.Servers) == 0 {
			return damaged(path, errors.New("its content makes no sense"))
		}
	}
	return nil
}

// hasState says whether this server ever took part in a cluster: any log entry,
// snapshot, vote or term. A bootstrap that was cut short between the term and
// the first entry is undone: only this node's own bootstrap sets term 1, an
// elected leader's first term is 2.
func (s *stores) hasState() (bool, error) {
	last, err := s.logs.LastIndex()
	if err != nil {
		return false, err
	}
	snaps, err := s.snaps.List()
	if err != nil {
		return false, err
	}
	if last > 0 || len(snaps) > 0 {
		return true, nil
	}
	term, err := s.uint64OrZero(keyCurrentTerm)
	if err != nil {
		return false, err
	}
	vote, err := s.uint64OrZero(keyLastVoteTerm)
	if err != nil {
		return false, err
	}
	if term == 1 && vote == 0 {
		return false, s.stable.SetUint64(keyCurrentTerm, 0)
	}
	return term > 0 || vote > 0, nil
}

func (s *stores) uint64OrZero(key []byte) (uint64, error) {
	v, err := s.stable.GetUint64(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return 0, nil
	}
	return v, err
}

// close closes the store, waiting no longer than ctx: a call that hangs in the
// kernel holds the store for ever.
func (s *stores) close(ctx context.Context) error {
	s.guard.closed.Store(true)
	done := make(chan error, 1)
	go func() { done <- s.closeNow() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("close the store: %w", ctx.Err())
	}
}

func (s *stores) closeNow() (err error) {
	if s.bolt != nil {
		err = s.bolt.Close()
	}
	if s.lock != nil {
		if lerr := s.lock.release(); err == nil {
			err = lerr
		}
	}
	return err
}
