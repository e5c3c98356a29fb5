package client

import (
	"net"

	"github.com/holdfast-lock/holdfast/wire"
)

// node is one server.
type node struct {
	addr string
	// what it does; guarded by the world's mu
	leads     bool
	hint      string // where a follower redirects to
	down      bool   // refuses connections
	blackhole bool   // connections are neither made nor refused
	silent    bool   // takes connections and never says a word
	deaf      bool   // after the greeting it reads nothing more
	mute      bool   // does not answer liveness pings
}

// peer is the server's side of one session.
type peer struct {
	w     *world
	n     *node
	conn  net.Conn
	label string
	woken chan struct{} // a deaf node's session reads on when this is closed
}

// serve greets and then hands every request to the test.
func (p *peer) serve() {
	defer p.conn.Close()
	r := wire.NewRequestReader(p.conn)
	greeted := false
	for {
		var req wire.Request
		if r.Read(&req) != nil {
			return
		}
		p.w.mu.Lock()
		n := *p.n
		p.w.mu.Unlock()
		switch {
		case n.silent:
		case req.Op == wire.OpHello:
			p.label = string(req.Text)
			p.write(wire.Reply{Op: wire.OpHelloOK, Version: wire.Version, Owner: req.Owner})
		case !greeted && req.Op == wire.OpPing && n.leads:
			greeted = true
			p.w.mu.Lock()
			p.w.peers = append(p.w.peers, p)
			p.w.mu.Unlock()
			p.write(wire.Reply{Op: wire.OpPong, Owner: req.Owner})
			if n.deaf {
				<-p.woken
			}
		case !n.leads:
			p.w.mu.Lock()
			if req.Op == wire.OpAcquire {
				p.w.moved = append(p.w.moved, received{Request: req, at: p.w.now(), p: p})
			}
			p.w.mu.Unlock()
			p.write(wire.Reply{Op: wire.OpMoved, Owner: req.Owner, Text: []byte(n.hint)})
		case req.Op == wire.OpPing && req.Owner == 0:
			if !n.mute {
				p.write(wire.Reply{Op: wire.OpPong})
			}
		default:
			rec := received{Request: req, key: string(req.Text), at: p.w.now(), p: p}
			rec.Text = nil
			p.w.mu.Lock()
			p.w.log = append(p.w.log, rec)
			p.w.mu.Unlock()
			p.w.reqs <- rec
		}
	}
}

func (p *peer) write(r wire.Reply) {
	b, err := wire.AppendReply(nil, &r)
	if err != nil {
		p.w.t.Errorf("the script writes a bad reply: %v", err)
	}
	_, _ = p.conn.Write(b)
}
