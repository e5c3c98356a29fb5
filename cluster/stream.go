package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	handshakeTimeout = 5 * time.Second
	maxUnproven      = 64       // connections that have not finished their handshake
	maxControl       = 64 << 10 // bytes of a probe's or join's message
)

var (
	errFenced = errors.New("this node takes no part any more")
	errMuted  = errors.New("this node is giving up leadership")
	errClosed = errors.New("peer layer is closed")
)

// peerStream is the raft.StreamLayer: TCP with a handshake on each connection.
// Everything that reaches Accept has proven which cluster and server it is of.
// A TLS layer would wrap the connection in connect and in serve, before the
// handshake; nothing else touches the bare connection.
type peerStream struct {
	id    *identity
	addr  raft.ServerAddress // our own, as raft knows it
	ln    net.Listener
	log   *slog.Logger
	limit limiter
	max   int // connections, both directions

	// probe and join answer the other two purposes; set before serve.
	probe func() probeAnswer
	join  func(context.Context, serverName, joinRequest) joinAnswer

	ready    chan net.Conn // proven raft connections
	unproven chan struct{} // a slot per handshake in progress
	done     chan struct{} // closed by Close
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  map[*peerConn]struct{} // guarded by mu
	closed bool                   // guarded by mu
	fenced bool                   // guarded by mu
	muted  time.Time              // guarded by mu; no outgoing raft traffic before it
}

func newPeerStream(id *identity, addr raft.ServerAddress, ln net.Listener, maxConns int, log *slog.Logger) *peerStream {
	return &peerStream{
		id: id, addr: addr, ln: ln, log: log, max: maxConns,
		ready: make(chan net.Conn), unproven: make(chan struct{}, maxUnproven),
		done: make(chan struct{}), conns: make(map[*peerConn]struct{}),
	}
}

// start begins to accept.
func (s *peerStream) start() {
	s.wg.Add(1)
	go s.acceptLoop()
}

func (s *peerStream) acceptLoop() {
	defer s.wg.Done()
	for {
		c, err := s.ln.Accept()
		if err != nil {
			if s.isClosed() {
				return
			}
			s.warn("accept", "cannot accept peer connections", "error", err)
			select {
			case <-s.done:
				return
			case <-time.After(50 * time.Millisecond): // out of descriptors: others must close first
			}
			continue
		}
		select {
		case s.unproven <- struct{}{}:
		default:
			s.warn("unproven", "too many peer connections without a handshake, dropping new ones", "limit", maxUnproven)
			_ = c.Close()
			continue
		}
		s.wg.Add(1)
		go s.serve(c)
	}
}

// serve runs the accepting side of the handshake and hands the connection on.
func (s *peerStream) serve(raw net.Conn) {
	defer s.wg.Done()
	proven := false
	release := func() {
		if !proven {
			proven = true
			<-s.unproven
		}
	}
	defer release()
	c, err := s.track(raw, false)
	if err != nil {
		s.warn("track", "dropping a peer connection", "from", raw.RemoteAddr().String(), "reason", err)
		_ = raw.Close()
		return
	}
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	body, err := readFrame(c)
	var h hello
	if err == nil {
		h, err = decodeHello(body)
	}
	if err != nil {
		s.rejectGarbage(c, err)
		return
	}
	code, reason := s.judge(&h)
	w := welcome{code: code, cluster: s.id.clusterID(), server: s.id.self, reason: reason}
	if code != welcomeOK {
		s.warn("refused "+h.from.String(), "refused a peer", "peer", h.from.String(), "from", c.RemoteAddr().String(), "reason", reason)
	}
	if _, err := c.Write(w.encode()); err != nil || code != welcomeOK {
		closeGently(c)
		return
	}
	switch h.purpose {
	case purposeRaft:
		_ = c.SetDeadline(time.Time{})
		release()
		select {
		case s.ready <- c:
		case <-s.done:
			_ = c.Close()
		}
	case purposeProbe:
		s.answer(c, s.probe())
	case purposeJoin:
		release()
		s.serveJoin(c, h.from)
	}
}

// rejectGarbage closes a connection that did not begin with a readable hello.
func (s *peerStream) rejectGarbage(c *peerConn, err error) {
	var v versionError
	if errors.As(err, &v) {
		w := welcome{code: refusedVersion, server: s.id.self, reason: fmt.Sprintf("this node speaks peer protocol version %d, not %d", handshakeVersion, byte(v))}
		_, _ = c.Write(w.encode())
		closeGently(c)
	} else {
		_ = c.Close()
	}
	if !errors.Is(err, io.EOF) && !s.isClosed() { // a bare connect is a health check's habit
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		s.warn("garbage "+host, "dropped a connection to the peer port that is not of a peer", "from", c.RemoteAddr().String(), "error", err)
	}
}

func (s *peerStream) serveJoin(c *peerConn, from serverName) {
	var req joinRequest
	if err := readControl(c, &req); err != nil {
		_ = c.Close()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with ctx
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	ans := s.join(ctx, from, req)
	s.answer(c, ans)
}

func (s *peerStream) answer(c *peerConn, v any) {
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	_ = writeControl(c, v)
	closeGently(c)
}

// closeGently lets the peer read what was sent before the connection goes.
func closeGently(c *peerConn) {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.CopyN(io.Discard, c, maxControl)
	}
	_ = c.Close()
}

// Accept implements net.Listener for raft: it returns proven connections only.
func (s *peerStream) Accept() (net.Conn, error) {
	select {
	case c := <-s.ready:
		return c, nil
	case <-s.done:
		return nil, errClosed
	}
}

// Addr implements net.Listener; raft takes it for the local server address.
func (s *peerStream) Addr() net.Addr { return streamAddr(s.addr) }

type streamAddr string

func (streamAddr) Network() string  { return "tcp" }
func (a streamAddr) String() string { return string(a) }

func (s *peerStream) isClosed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Close stops accepting and closes every connection.
func (s *peerStream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	s.mu.Unlock()
	err := s.ln.Close()
	s.closeConns(all)
	return err
}

func (s *peerStream) warn(key, msg string, args ...any) {
	if ok, held := s.limit.allow(key); ok {
		if held > 0 {
			args = append(args, "repeated", held)
		}
		s.log.Warn(msg, args...)
	}
}
