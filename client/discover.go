package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

const (
	// maxHops bounds how many redirects one search follows: hints may be stale
	// and may form a loop.
	maxHops    = 5
	minBackoff = 10 * time.Millisecond
	maxBackoff = 300 * time.Millisecond
)

// connect gets the client the sessions it should have, and ends when it has
// them or is closed. At most one runs at a time. While there is no session at
// all it searches on, with jitter; further sessions are tried for once.
func (c *Client) connect() {
	for failed := 0; ; {
		c.mu.Lock()
		have := len(c.sessions)
		if c.closed || have >= c.cfg.sessions {
			c.connecting = false
			c.mu.Unlock()
			return
		}
		only := ""
		if have > 0 {
			only = c.sessions[0].addr
		}
		hint, flaps := c.hint, c.flaps
		c.mu.Unlock()
		if flaps > 1 { // servers that take sessions only to end them are not dialled in a spin
			c.sleep(jitter(flaps))
		}

		s, r, err := c.find(only, hint)
		if err == nil && c.adopt(s, r) {
			failed = 0
			continue
		}
		c.mu.Lock()
		c.hint = ""
		if c.closed || len(c.sessions) > 0 {
			c.connecting = false
			c.moreAfter = c.cfg.now() + time.Second
			c.mu.Unlock()
			return
		}
		c.announce(err)
		c.mu.Unlock()
		c.cfg.log.Debug("no leader found", "err", err)
		failed++
		c.sleep(jitter(failed))
	}
}

// jitter is the pause after so many failures in a row, 1 or more: 10 ms,
// doubling up to 300 ms, give or take a half.
func jitter(failures int) time.Duration {
	d := min(minBackoff<<min(failures-1, 5), maxBackoff)
	return d/2 + rand.N(d)
}

// sleep returns after d, or when the client is closed.
func (c *Client) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.ctx.Done():
	}
}

// found is what one address had to say.
type found struct {
	addr string
	s    *session
	r    *wire.ReplyReader
	hint string // the leader, according to a node that is not
	err  error
}

// find asks for the leader: only one address when given, else all endpoints
// and the hint at once, and then where their redirects point to.
func (c *Client) find(only, hint string) (*session, *wire.ReplyReader, error) {
	ctx, cancel := context.WithTimeout(c.ctx, 2*c.cfg.dialTime)
	defer cancel()
	results := make(chan found)
	asked := map[string]bool{}
	running := 0
	ask := func(addr string) {
		if addr == "" || asked[addr] {
			return
		}
		asked[addr] = true
		running++
		c.wg.Go(func() {
			f := c.greet(ctx, addr)
			select {
			case results <- f:
			case <-ctx.Done():
				if f.s != nil {
					_ = f.s.conn.Close()
				}
			}
		})
	}
	if only != "" {
		ask(only)
	} else {
		ask(hint)
		for _, e := range c.endpoints {
			ask(e)
		}
	}
	var errs []error
	for hops := 0; running > 0; running-- {
		var f found
		select {
		case f = <-results:
		case <-ctx.Done():
			return nil, nil, errors.Join(append(errs, fmt.Errorf("no answer from the leader within %s", 2*c.cfg.dialTime))...)
		}
		switch {
		case f.s != nil:
			return f.s, f.r, nil // cancel ends the others
		case f.err != nil:
			errs = append(errs, f.err)
		case f.hint == "":
			errs = append(errs, fmt.Errorf("%s does not lead and knows no leader", f.addr))
		case hops < maxHops && only == "":
			hops++
			ask(f.hint)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("the nodes redirect to each other"))
	}
	return nil, nil, errors.Join(errs...)
}

// greet connects to one address and asks it whether it leads.
func (c *Client) greet(ctx context.Context, addr string) found {
	f := found{addr: addr}
	conn, err := c.dial(ctx, addr)
	if err != nil {
		f.err = fmt.Errorf("connect to %s: %w", addr, err)
		return f
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(c.cfg.dialTime))
	hello, ping := newOwner(), newOwner()
	buf, _ := wire.AppendRequest(nil, &wire.Request{Op: wire.OpHello, Version: wire.Version, Owner: hello, Text: []byte(c.cfg.label)})
	buf, _ = wire.AppendRequest(buf, &wire.Request{Op: wire.OpPing, Owner: ping})
	r := wire.NewReplyReader(conn)
	_, err = conn.Write(buf)
	for err == nil {
		var reply wire.Reply
		if err = r.Read(&reply); err != nil {
			break
		}
		switch {
		case reply.Op == wire.OpPong && reply.Owner == ping:
			_ = conn.SetDeadline(time.Time{})
			f.s, f.r = newSession(c, conn, addr), r
			return f
		case reply.Op == wire.OpMoved:
			f.hint = string(reply.Text)
			_ = conn.Close()
			return f
		case reply.Op == wire.OpRefused:
			err = fmt.Errorf("refused: %s", reply.Text)
		case reply.Op != wire.OpHelloOK:
			err = fmt.Errorf("unexpected reply %q", reply.Op)
		}
	}
	_ = conn.Close()
	f.err = fmt.Errorf("greet %s: %w", addr, err)
	return f
}

// dial connects; a host name is resolved anew each time.
func (c *Client) dial(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.dialTime)
	defer cancel()
	conn, err := c.cfg.dial(ctx, "tcp", addr)
	if err != nil || c.cfg.tls == nil {
		return conn, err
	}
	conf := c.cfg.tls
	if conf.ServerName == "" {
		conf = conf.Clone()
		conf.ServerName, _, _ = net.SplitHostPort(addr)
	}
	t := tls.Client(conn, conf)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return t, nil
}
