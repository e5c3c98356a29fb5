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
