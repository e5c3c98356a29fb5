// Package frontend serves clients on the node that leads. Sessions decode
// requests and write replies; one goroutine, the sequencer, owns the queues and
// turns what has arrived into log entries. DESIGN.md has the data flow and the
// invariants; wire/PROTOCOL.md is what it speaks.
package frontend

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
)

// Log is all that the front end needs of the replicated log. *cluster.Node
// implements it. All methods may be called from any goroutine.
type Log interface {
	// Propose appends one encoded entry and soon returns. done is called
	// exactly once, from another goroutine and never from within Propose: with a nil error when the entry is
	// committed and applied here, with fsm.ErrNotExecuted when it certainly
	// never will be, and with anything else when that is not known.
	Propose(entry []byte, done func(fsm.Result, error))
	// LeaderClientAddr is the client address of the present leader, or "".
	LeaderClientAddr() string
	// Resign gives up leadership, if this node has it.
	Resign(why string)
}

// inboxMessages is how many messages of sessions may wait for the sequencer;
// beyond it sessions stop reading. gatherMessages is how many are taken before
// the sequencer proposes, so that a flood cannot keep it from proposing.
const (
	inboxMessages  = 1024
	gatherMessages = 512
)

// Server accepts client sessions and serves them while this node leads; while
// it does not, it answers Moved. Create it with New.
type Server struct {
	cfg   Config
	log   *slog.Logger
	stats counters
	birth time.Time
	q     *sequencer // owned by run

	inbox    chan *inbound
	fates    chan fate
	control  chan func()
	stop     chan struct{} // closed when nothing more is sequenced
	stopOnce sync.Once
	stopped  chan struct{} // closed when run has returned
	inbounds sync.Pool

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	sessions  map[*session]struct{}
	closing   bool
	active    sync.WaitGroup // accept loops and sessions
}

// New makes a server and starts its sequencer. It serves nobody before Lead,
// and needs Shutdown even when Serve was never called.
func New(cfg Config, table *fsm.Table, log Log) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, birth: time.Now(),
		inbox: make(chan *inbound, inboxMessages), fates: make(chan fate), control: make(chan func()),
		stop: make(chan struct{}), stopped: make(chan struct{}),
		listeners: make(map[net.Listener]struct{}), sessions: make(map[*session]struct{}),
	}
	s.inbounds.New = func() any { return new(inbound) }
	s.q = newSequencer(cfg, table, log, &s.stats, func(e *entry, res fsm.Result, err error) {
		select {
		case s.fates <- fate{e, res, err}:
		case <-s.stop:
		}
	})
	go s.run()
	return s
}

// mono is plain monotonic time since the server was made.
func (s *Server) mono() time.Duration { return time.Since(s.birth) }

// Lead begins a term of leadership: epoch is the log index of this node's
// Takeover entry and base the cluster time its Apply returned.
func (s *Server) Lead(epoch uint64, base time.Duration) {
	s.do(func() { s.q.lead(epoch, base) })
}

// Follow ends a term of leadership. It returns when no further entry will be
// proposed for it.
func (s *Server) Follow() { s.do(s.q.follow) }

// Waiters returns how many acquires wait for each of the keys.
func (s *Server) Waiters(keys []string) []int {
	counts := make([]int, len(keys))
	s.do(func() {
		for i, key := range keys {
			if k := s.q.keys[key]; k != nil {
				counts[i] = k.n
			}
		}
	})
	return counts
}

// do runs f on the sequencer's goroutine and waits for it, unless the server
// has stopped.
func (s *Server) do(f func()) {
	done := make(chan struct{})
	select {
	case s.control <- func() { f(); close(done) }:
		<-done
	case <-s.stop:
	}
}

// Alive reports whether the sequencer answers within d.
func (s *Server) Alive(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case s.control <- func() {}:
		return nil
	case <-s.stop:
		return errors.New("the client front end has stopped")
	case <-timer.C:
		return fmt.Errorf("the client front end has not answered for %s", d)
	}
}

// run is the sequencer's goroutine.
func (s *Server) run() {
	defer close(s.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		inbox := s.inbox
		if s.q.full() {
			inbox = nil // sessions wait, and with them their clients
		}
		select {
		case in := <-inbox:
			s.accept(in)
		case f := <-s.fates:
			s.q.look(s.mono())
			s.q.settle(f)
		case f := <-s.control:
			s.q.look(s.mono())
			f()
		case <-timer.C:
			s.q.look(s.mono())
		case <-s.stop:
			return
		}
		s.gather()
		s.q.finish()
		if wake, ok := s.q.nextWake(); ok {
			timer.Reset(max(wake-s.mono(), 0))
		} else {
			timer.Stop()
		}
	}
}

// gather takes what else has already arrived, so that it shares an entry.
func (s *Server) gather() {
	for range gatherMessages {
		select {
		case f := <-s.fates:
			s.q.look(s.mono())
			s.q.settle(f)
			continue
		default:
		}
		if s.q.full() {
			return
		}
		select {
		case in := <-s.inbox:
			s.accept(in)
		default:
			return
		}
	}
}

func (s *Server) accept(in *inbound) {
	s.q.look(s.mono())
	s.q.take(in)
	in.sess = nil
	clear(in.reqs)
	s.inbounds.Put(in)
}

// deliver hands input to the sequencer; false means that the server stops.
func (s *Server) deliver(in *inbound) bool {
	select {
	case s.inbox <- in:
		return true
	case <-s.stop:
		return false
	}
}

// sessionEnded is a session's last word.
func (s *Server) sessionEnded(sess *session, lost []grantRef) {
	s.do(func() { s.q.ended(sess, lost) })
	s.mu.Lock()
	delete(s.sessions, sess)
	s.mu.Unlock()
	s.stats.sessions.Add(-1)
}
