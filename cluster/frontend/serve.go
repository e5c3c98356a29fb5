package frontend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Serve accepts sessions on ln until Shutdown, and returns nil then. Several
// listeners may be served at once.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return errors.Join(net.ErrClosed, ln.Close())
	}
	s.listeners[ln] = struct{}{}
	s.active.Add(1)
	s.mu.Unlock()
	defer s.active.Done()
	pause := time.Duration(0)
	for {
		conn, err := ln.Accept()
		if err == nil {
			pause = 0
			s.admit(conn)
			continue
		}
		s.mu.Lock()
		closing := s.closing
		s.mu.Unlock()
		if closing {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept clients on %s: %w", ln.Addr(), err)
		}
		// Out of file descriptors, most likely: it passes when sessions end.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.log.Warn("cannot accept a client session; trying again", "addr", ln.Addr(), "err", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-s.stop:
			return nil
		}
	}
}

func (s *Server) admit(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || len(s.sessions) >= s.cfg.MaxSessions {
		s.stats.turnedAway.Add(1)
		_ = conn.Close()
		return
	}
	sess := newSession(s, conn)
	s.sessions[sess] = struct{}{}
	s.stats.accepted.Add(1)
	s.stats.sessions.Add(1)
	s.active.Go(sess.run)
}

// Close stops accepting sessions; those there are go on. Leadership should be
// handed over after it, and Shutdown called then.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for ln := range s.listeners {
		_ = ln.Close()
	}
}

// Shutdown stops accepting, answers what waits with Moved, closes every session
// politely and, when ctx ends first, at once. It then stops the sequencer.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Close()
	s.Follow()
	s.mu.Lock()
	for sess := range s.sessions {
		sess.move()
	}
	s.mu.Unlock()
	gone := make(chan struct{})
	go func() { s.active.Wait(); close(gone) }()
	var err error
	select {
	case <-gone:
	case <-ctx.Done():
		err = ctx.Err()
		s.mu.Lock()
		for sess := range s.sessions {
			sess.abort()
		}
		s.mu.Unlock()
	}
	s.stopOnce.Do(func() { close(s.stop) })
	<-gone
	<-s.stopped
	return err
}
