package cluster

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// peerConn is a connection that the stream can close.
type peerConn struct {
	net.Conn
	s       *peerStream
	outRaft bool
	once    sync.Once
	err     error
}

func (c *peerConn) Close() error {
	c.once.Do(func() {
		c.s.mu.Lock()
		delete(c.s.conns, c)
		c.s.mu.Unlock()
		c.err = c.Conn.Close()
	})
	return c.err
}

// track counts a connection in, or says why not.
func (s *peerStream) track(c net.Conn, outRaft bool) (*peerConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case s.fenced:
		return nil, errFenced
	case outRaft && time.Now().Before(s.muted):
		return nil, errMuted
	case len(s.conns) >= s.max:
		return nil, fmt.Errorf("%d peer connections are open, the most allowed (MaxPeerConns)", s.max)
	}
	pc := &peerConn{Conn: c, s: s, outRaft: outRaft}
	s.conns[pc] = struct{}{}
	return pc, nil
}

// closeConns closes the tracked connections that match.
func (s *peerStream) closeConns(match func(*peerConn) bool) {
	s.mu.Lock()
	var victims []*peerConn
	for c := range s.conns {
		if match(c) {
			victims = append(victims, c)
		}
	}
	s.mu.Unlock()
	for _, c := range victims {
		_ = c.Close()
	}
}

func all(*peerConn) bool { return true }

// fence ends all traffic with peers for good: a node whose disk fails must not
// go on sending heartbeats while its process is on the way out.
func (s *peerStream) fence() {
	s.mu.Lock()
	s.fenced = true
	s.mu.Unlock()
	s.closeConns(all)
}

// mute holds back our own raft messages for d, so that the leader's lease runs
// out and the others elect another.
func (s *peerStream) mute(d time.Duration) {
	s.mu.Lock()
	s.muted = time.Now().Add(d)
	s.mu.Unlock()
	s.closeConns(func(c *peerConn) bool { return c.outRaft })
}
