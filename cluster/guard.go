package cluster

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// storeHook is called around every guarded storage call: before (after=false)
// and after (after=true) it did its work. n counts the calls from 1. It may
// block, and an error it returns is taken as the call's own.
type storeHook func(op string, n uint64, after bool) error

// slowStore is how many times StoreTimeout a call may take that moves a whole
// snapshot: those sync or read all of it in one go, on a background goroutine.
const slowStore = 10

var errStoreClosed = errors.New("store is closed")

// guard stands between raft and the disk. Raft goes on as a follower after a
// failed write, panics on some, and stays leader for ever when a call hangs; a
// kernel marks pages clean after a failed sync. So the first error, panic or
// overlong call trips the guard, for good: the node reports it and must exit.
//
// A raft goroutine whose call failed, or that calls later, is ended on the spot
// (runtime.Goexit): raft's own deferred clean-up runs, its panics do not, and
// nothing is written any more.
type guard struct {
	timeout time.Duration
	fail    func(error) // called at most once, must not block
	hook    storeHook   // nil outside tests

	calls  atomic.Uint64
	inRaft atomic.Bool // callers are raft's goroutines
	// starting = raft is looking for a snapshot it can read: a damaged one is then
	// passed over for the one before it.
	starting atomic.Bool
	closed   atomic.Bool
	once     sync.Once
	down     atomic.Bool // tripped
}

// trip reports the first failure.
func (g *guard) trip(err error) {
	if g.closed.Load() {
		return // the store was closed under a straggler; nothing was lost
	}
	g.down.Store(true)
	g.once.Do(func() { g.fail(err) })
}

// benign says that an error is an answer, not a fault.
func benign(err error) bool {
	return err == nil || errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, raftboltdb.ErrKeyNotFound)
}

// endCaller ends the calling goroutine if it is one of raft's.
func (g *guard) endCaller() {
	if g.inRaft.Load() {
		runtime.Goexit()
	}
}

// do runs one storage call under watch.
func (g *guard) do(op string, limit time.Duration, fn func() error) error {
	if g.down.Load() || g.closed.Load() {
		g.endCaller()
		return errStoreClosed
	}
	w := g.watch(op, limit)
	err := g.call(op, fn)
	w.stop()
	if !benign(err) {
		err = fmt.Errorf("storage: %s: %w", op, err)
		g.trip(err)
	}
	if g.down.Load() {
		g.endCaller()
	}
	return err
}

// watchSteps is in how many steps a call's limit is counted. A process that was
// paused and goes on (SIGSTOP, a frozen machine) loses one step by it, however
// long the pause was: its disk is not to blame.
const watchSteps = 6

// watch trips the guard if it is not stopped within limit.
type watch struct {
	g     *guard
	op    string
	limit time.Duration

	mu    sync.Mutex
	timer *time.Timer // guarded by mu
	steps int         // guarded by mu; left to go, 0 = stopped
}

func (g *guard) watch(op string, limit time.Duration) *watch {
	w := &watch{g: g, op: op, limit: limit, steps: watchSteps}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(limit/watchSteps, w.step)
	return w
}

func (w *watch) step() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.steps == 0 {
		return
	}
	if w.steps--; w.steps > 0 {
		w.timer.Reset(w.limit / watchSteps)
		return
	}
	w.g.trip(fmt.Errorf("storage: %s has taken more than %v: the disk of the data directory hangs", w.op, w.limit))
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps = 0
	w.timer.Stop()
}

// call runs fn with the hook around it and turns a panic, also one from a page
// that cannot be read through the memory map, into an error.
func (g *guard) call(op string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the file is damaged or cannot be read: %v", r)
		}
	}()
	n := g.calls.Add(1)
	if g.hook != nil {
		if err := g.hook(op, n, false); err != nil {
			return err
		}
	}
	err = fn()
	if g.hook != nil && benign(err) {
		if herr := g.hook(op, n, true); herr != nil {
			return herr
		}
	}
	return err
}

// guardedLog is a raft.LogStore under guard.
type guardedLog struct {
	g *guard
	s *sealedStore
}

func (l guardedLog) FirstIndex() (i uint64, err error) {
	err = l.g.do("read the first log index", l.g.timeout, func() (err error) { i, err = l.s.FirstIndex(); return err })
	return i, err
}

func (l guardedLog) LastIndex() (i uint64, err error) {
	err = l.g.do("read the last log index", l.g.timeout, func() (err error) { i, err = l.s.LastIndex(); return err })
	return i, err
}

func (l guardedLog) GetLog(index uint64, log *raft.Log) error {
	return l.g.do("read a log entry", l.g.timeout, func() error { return l.s.GetLog(index, log) })
}

func (l guardedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l guardedLog) StoreLogs(logs []*raft.Log) error {
	return l.g.do("append to the log", l.g.timeout, func() error { return l.s.StoreLogs(logs) })
}

// deleteChunk bounds the entries of one delete: a delete holds the store's write
// lock, and a long one would stall appends.
const deleteChunk = 8 << 10

// DeleteRange deletes lo..hi. The head of the log goes in chunks, lowest first,
// so that a crash in between leaves no gap; the tail (a conflict with a new
// leader) goes in one transaction.
func (l guardedLog) DeleteRange(lo, hi uint64) error {
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	for hi < last && hi-lo >= deleteChunk {
		if err := l.deleteOnce(lo, lo+deleteChunk-1); err != nil {
			return err
		}
		lo += deleteChunk
	}
	return l.deleteOnce(lo, hi)
}

func (l guardedLog) deleteOnce(lo, hi uint64) error {
	return l.g.do("delete from the log", l.g.timeout, func() error { return l.s.DeleteRange(lo, hi) })
}

// guardedStable is a raft.StableStore under guard.
type guardedStable struct {
	g *guard
	s *sealedStore
}

func (t guardedStable) Set(k, v []byte) error {
	return t.g.do("write raft's term or vote", t.g.timeout, func() error { return t.s.Set(k, v) })
}

func (t guardedStable) Get(k []byte) (v []byte, err error) {
	err = t.g.do("read raft's term or vote", t.g.timeout, func() (err error) { v, err = t.s.Get(k); return err })
	return v, unwrapNotFound(err)
}

func (t guardedStable) SetUint64(k []byte, v uint64) error {
	return t.g.do("write raft's term or vote", t.g.timeout, func() error { return t.s.SetUint64(k, v) })
}

func (t guardedStable) GetUint64(k []byte) (v uint64, err error) {
	err = t.g.do("read raft's term or vote", t.g.timeout, func() (err error) { v, err = t.s.GetUint64(k); return err })
	return v, unwrapNotFound(err)
}

// unwrapNotFound keeps the bare error: raft compares its text.
func unwrapNotFound(err error) error {
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return raftboltdb.ErrKeyNotFound
	}
	return err
}

// guardedSnaps is a raft.SnapshotStore under guard.
type guardedSnaps struct {
	g *guard
	s raft.SnapshotStore
	// opened is told the metadata of each snapshot that raft reads, to learn the
	// configuration's index, which raft itself does not give away.
	opened func(*raft.SnapshotMeta)
}

func (p guardedSnaps) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, trans raft.Transport) (sink raft.SnapshotSink, err error) {
	err = p.g.do("create a snapshot", p.g.timeout, func() (err error) {
		sink, err = p.s.Create(version, index, term, conf, confIndex, trans)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &guardedSink{g: p.g, s: sink}, nil
}

func (p guardedSnaps) List() (l []*raft.SnapshotMeta, err error) {
	err = p.g.do("list the snapshots", p.g.timeout, func() (err error) { l, err = p.s.List(); return err })
	return l, err
}

func (p guardedSnaps) Open(id string) (meta *raft.SnapshotMeta, rc io.ReadCloser, err error) {
	open := func() (err error) { meta, rc, err = p.s.Open(id); return err }
	if p.g.starting.Load() {
		err = open()
	} else {
		err = p.g.do("open a snapshot", slowStore*p.g.timeout, open)
	}
	if err == nil && p.opened != nil {
		p.opened(meta)
	}
	return meta, rc, err
}

// guardedSink guards the writes of one snapshot.
type guardedSink struct {
	g *guard
	s raft.SnapshotSink
}

func (k *guardedSink) ID() string { return k.s.ID() }

func (k *guardedSink) Write(b []byte) (n int, err error) {
	err = k.g.do("write a snapshot", k.g.timeout, func() (err error) { n, err = k.s.Write(b); return err })
	return n, err
}

func (k *guardedSink) Close() error {
	return k.g.do("finish a snapshot", slowStore*k.g.timeout, k.s.Close)
}

func (k *guardedSink) Cancel() error {
	return k.g.do("discard a snapshot", slowStore*k.g.timeout, k.s.Cancel)
}
