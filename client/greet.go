package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// greeted is a connection whose server has said that it leads.
type greeted struct {
	addr      string
	conn, raw net.Conn
	replies   *wire.ReplyReader
}

// movedError: the server does not lead.
type movedError struct{ leader string }

func (e *movedError) Error() string {
	if e.leader == "" {
		return "does not lead and knows no leader"
	}
	return "does not lead and points to " + e.leader
}

// greet connects to an address and asks whether it leads. A name is resolved anew
// each time. A server that does not answer costs no more than the dial time, and no
// acquire: none is sent before the pong.
func (c *Client) greet(ctx context.Context, address string) (*greeted, *movedError, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.dialTime)
	defer cancel()
	raw, err := c.cfg.dial(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	// The dialer may be someone else's and the TLS handshake knows only ctx: closing
	// the connection ends whatever is going on.
	unhook := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer unhook()
	conn := raw
	if c.cfg.tls != nil {
		conf := c.cfg.tls.Clone()
		if conf.ServerName == "" {
			conf.ServerName, _, _ = net.SplitHostPort(address)
		}
		t := tls.Client(raw, conf)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, nil, err
		}
		conn = t
	}
	g := &greeted{addr: address, conn: conn, raw: raw, replies: wire.NewReplyReader(conn)}
	moved, err := c.askLeader(g)
	if err == nil && moved == nil && !unhook() {
		err = ctx.Err() // closed in the very last moment
	}
	if err != nil || moved != nil {
		_ = raw.Close()
		if ctx.Err() != nil && err != nil {
			err = fmt.Errorf("no answer: %w", ctx.Err())
		}
		return nil, moved, err
	}
	return g, nil, nil
}

// askLeader sends hello and ping and reads their answers.
func (c *Client) askLeader(g *greeted) (*movedError, error) {
	var buf []byte
	hello, ping := newOwner(), newOwner()
	if c.cfg.label != "" {
		buf, _ = wire.AppendRequest(buf, &wire.Request{Op: wire.OpHello, Version: wire.Version, Owner: hello, Text: []byte(c.cfg.label)})
	}
	buf, _ = wire.AppendRequest(buf, &wire.Request{Op: wire.OpPing, Owner: ping})
	_ = g.conn.SetDeadline(time.Now().Add(c.cfg.dialTime))
	if _, err := g.conn.Write(buf); err != nil {
		return nil, err
	}
	for {
		var reply wire.Reply
		if err := g.replies.Read(&reply); err != nil {
			return nil, err
		}
		switch {
		case reply.Op == wire.OpMoved:
			return &movedError{string(reply.Text)}, nil
		case reply.Op == wire.OpRefused:
			return nil, refusal(&reply)
		case reply.Op == wire.OpHelloOK && reply.Owner == hello:
		case reply.Op == wire.OpPong && reply.Owner == ping:
			return nil, g.conn.SetDeadline(time.Time{})
		default:
			return nil, fmt.Errorf("unexpected reply %q to the greeting", byte(reply.Op))
		}
	}
}
