package client

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// peer is the server's side of one connection, played by the test.
type peer struct {
	t        *testing.T
	conn     net.Conn
	addr     string
	requests *wire.RequestReader
}

// read returns the next request, its text copied.
func (p *peer) read() (wire.Request, error) {
	var req wire.Request
	err := p.requests.Read(&req)
	req.Text = append([]byte(nil), req.Text...)
	return req, err
}

// readPast is read, but answers pings: a server that owes an answer is asked
// whether it lives.
func (p *peer) readPast() (wire.Request, error) {
	for {
		req, err := p.read()
		if err != nil || req.Op != wire.OpPing {
			return req, err
		}
		p.pong(req)
	}
}

// pong answers a ping if the client still listens.
func (p *peer) pong(ping wire.Request) {
	buf, _ := wire.AppendReply(nil, &wire.Reply{Op: wire.OpPong, Owner: ping.Owner})
	_, _ = p.conn.Write(buf)
}

// alive answers what asks for no change: every key is free.
func (p *peer) alive(req wire.Request) {
	switch req.Op {
	case wire.OpPing:
		p.pong(req)
	case wire.OpQuery:
		buf, _ := wire.AppendReply(nil, &wire.Reply{Op: wire.OpState, Owner: req.Owner})
		_, _ = p.conn.Write(buf)
	}
}

func (p *peer) expect(op wire.Op) wire.Request {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(5 * time.Minute))
	read := p.readPast
	if op == wire.OpPing {
		read = p.read
	}
	req, err := read()
	if err != nil {
		p.t.Fatalf("waiting for %q: %v", byte(op), err)
	}
	if req.Op != op {
		p.t.Fatalf("got %q %q, want %q", byte(req.Op), req.Text, byte(op))
	}
	return req
}

// quiet fails the test if anything but a ping arrives within d.
func (p *peer) quiet(d time.Duration) {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(d))
	req, err := p.readPast()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("got %q %q, %v; want silence", byte(req.Op), req.Text, err)
	}
}

// gone waits for the client to close the connection without sending anything.
func (p *peer) gone() {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(10 * time.Minute))
	if req, err := p.readPast(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("got %q %q, %v; want the end of the session", byte(req.Op), req.Text, err)
	}
}

func (p *peer) reply(r wire.Reply) {
	p.t.Helper()
	buf, err := wire.AppendReply(nil, &r)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.conn.Write(buf); err != nil {
		p.t.Fatalf("reply %q: %v", byte(r.Op), err)
	}
}

func (p *peer) grant(a wire.Request, token uint64) {
	p.t.Helper()
	p.reply(wire.Reply{Op: wire.OpAcquired, Owner: a.Owner, Token: token})
}

func (p *peer) moved(owner uint64, to string) {
	p.t.Helper()
	p.reply(wire.Reply{Op: wire.OpMoved, Owner: owner, Text: []byte(to)})
}

// serve answers requests until the connection ends.
func (p *peer) serve(answer func(p *peer, req wire.Request)) {
	for {
		req, err := p.read()
		if err != nil {
			return
		}
		answer(p, req)
	}
}
