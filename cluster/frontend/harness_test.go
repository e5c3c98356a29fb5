package frontend

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/fsm"
	"github.com/holdfast-lock/holdfast/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memLog is a log of one node in memory: entries are applied to the table in
// the order proposed. A test can hold them back, and decide their fate.
type memLog struct {
	table *fsm.Table

	mu      sync.Mutex
	index   uint64
	entries []fsm.Entry // every entry proposed, decoded
	held    []func()
	hold    bool
	delay   time.Duration // how long an entry is under way
	fail    error         // what the next proposals end with, instead of being applied
	hint    string
	resigns []string
}

func (l *memLog) Propose(data []byte, done func(fsm.Result, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	l.entries = append(l.entries, *e)
	fail := l.fail
	run := func() {
		if fail != nil {
			go done(fsm.Result{}, fail)
			return
		}
		l.index++
		res := l.table.Apply(l.index, data)
		go done(res, res.Err)
	}
	if l.delay > 0 {
		time.AfterFunc(l.delay, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			run()
		})
		return
	}
	if l.hold {
		l.held = append(l.held, run)
		return
	}
	run()
}

func (l *memLog) LeaderClientAddr() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hint
}

func (l *memLog) Resign(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resigns = append(l.resigns, why)
}

// set changes the log's behaviour; letting go applies what was held.
func (l *memLog) set(hold bool, fail error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold, l.fail = hold, fail
	if !hold {
		for _, run := range l.held {
			run()
		}
		l.held = nil
	}
}

// step applies the oldest entry held back.
func (l *memLog) step() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[0]()
	l.held = l.held[1:]
}

// ops counts the operations of one kind ever proposed.
func (l *memLog) ops(kind fsm.Kind) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		for _, op := range e.Ops {
			if op.Kind == kind {
				n++
			}
		}
	}
	return n
}

func (l *memLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

func (l *memLog) last() fsm.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[len(l.entries)-1]
}

// bench is a server over a memLog inside a synctest bubble: its time is
// virtual, and synctest.Wait means that everything has settled.
type bench struct {
	t     *testing.T
	srv   *Server
	log   *memLog
	table *fsm.Table
}

// inBubble runs f with a leading server of the given bounds.
func inBubble(t *testing.T, change func(*Config), f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		if change != nil {
			change(&cfg)
		}
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		table := fsm.NewTable()
		log := &memLog{table: table}
		b := &bench{t: t, srv: New(cfg, table, log), log: log, table: table}
		defer func() { // also when f fails: nothing may outlive the bubble
			log.set(false, fsm.ErrNotExecuted)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := b.srv.Shutdown(ctx); err != nil {
				t.Errorf("shutdown: %v", err)
			}
		}()
		b.takeOver()
		f(b)
	})
}

// takeOver commits a Takeover and begins a term of leadership with it.
func (b *bench) takeOver() {
	b.t.Helper()
	b.log.mu.Lock()
	b.log.index++
	index := b.log.index
	b.log.mu.Unlock()
	data, err := fsm.AppendEntry(nil, &fsm.Entry{Ops: []fsm.Op{{
		Kind: fsm.KindTakeover, Takeover: &fsm.Takeover{NodeID: "n1", ClientAddr: "n1:7420", TokenFloor: 1000},
	}}})
	if err != nil {
		b.t.Fatal(err)
	}
	res := b.table.Apply(index, data)
	if res.Err != nil {
		b.t.Fatal(res.Err)
	}
	b.srv.Lead(index, res.Clock)
}

// peer is the client's side of one session.
type peer struct {
	t    *testing.T
	conn net.Conn
	srv  net.Conn // the server's side
	got  chan wire.Reply
	end  chan error // why reading ended
}

// dial opens a session whose replies are read as they come.
func (b *bench) dial() *peer {
	p := b.dialSilent()
	go p.read()
	return p
}

// dialSilent opens a session that nobody reads.
func (b *bench) dialSilent() *peer {
	client, server := net.Pipe()
	b.srv.admit(server)
	b.t.Cleanup(func() { client.Close() })
	return &peer{t: b.t, conn: client, srv: server, got: make(chan wire.Reply, 1<<16), end: make(chan error, 1)}
}

func (p *peer) read() {
	r := wire.NewReplyReader(p.conn)
	for {
		var reply wire.Reply
		if err := r.Read(&reply); err != nil {
			p.end <- err
			close(p.got)
			return
		}
		reply.Text = append([]byte(nil), reply.Text...)
		p.got <- reply
	}
}

func (p *peer) send(reqs ...wire.Request) {
	p.t.Helper()
	var buf []byte
	for i := range reqs {
		var err error
		if buf, err = wire.AppendRequest(buf, &reqs[i]); err != nil {
			p.t.Fatal(err)
		}
	}
	if _, err := p.conn.Write(buf); err != nil {
		p.t.Fatalf("write: %v", err)
	}
	synctest.Wait()
}

// next returns the next reply, waiting in virtual time, and checks its op and
// owner.
func (p *peer) next(op wire.Op, owner uint64) wire.Reply {
	p.t.Helper()
	reply, ok := <-p.got
	if !ok {
		p.t.Fatalf("session ended (%v), want %c for %d", <-p.end, op, owner)
	}
	if reply.Op != op || reply.Owner != owner {
		p.t.Fatalf("got %c for %d (%q), want %c for %d", reply.Op, reply.Owner, reply.Text, op, owner)
	}
	return reply
}

// silent checks that nothing has been answered.
func (p *peer) silent() {
	p.t.Helper()
	synctest.Wait()
	select {
	case r, ok := <-p.got:
		p.t.Fatalf("got %c for %d (open %v), want silence", r.Op, r.Owner, ok)
	default:
	}
}

// ended waits for the session to be closed by the server without a reply.
func (p *peer) ended() {
	p.t.Helper()
	if r, ok := <-p.got; ok {
		p.t.Fatalf("got %c for %d, want the session closed", r.Op, r.Owner)
	}
}

func acquire(owner uint64, key string, wait, lease uint8) wire.Request {
	return wire.Request{Op: wire.OpAcquire, Owner: owner, Text: []byte(key), Wait: wait, Lease: lease}
}

func release(owner uint64, key string, token uint64) wire.Request {
	return wire.Request{Op: wire.OpRelease, Owner: owner, Text: []byte(key), Token: token}
}

func keep(owner uint64, key string, token uint64, lease uint8) wire.Request {
	return wire.Request{Op: wire.OpKeep, Owner: owner, Text: []byte(key), Token: token, Lease: lease}
}

func query(owner uint64, key string) wire.Request {
	return wire.Request{Op: wire.OpQuery, Owner: owner, Text: []byte(key)}
}

var errBroken = errors.New("leadership lost")
