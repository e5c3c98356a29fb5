package frontend

import (
	"net"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// grantRef names one exact grant.
type grantRef struct {
	key   string
	token uint64
}

// grantMark remembers that an Acquired frame starts at an offset of a buffer,
// so that a grant whose frame never reached the socket can be given back.
type grantMark struct {
	off int
	grantRef
}

// output is a run of encoded replies.
type output struct {
	buf     []byte
	marks   []grantMark
	answers int // replies in it that answer a request
}

func (o *output) reset() { o.buf, o.marks, o.answers = o.buf[:0], o.marks[:0], 0 }

// unsent returns the grants whose frame starts at or after offset n.
func (o *output) unsent(n int) []grantRef {
	var refs []grantRef
	for _, m := range o.marks {
		if m.off >= n {
			refs = append(refs, m.grantRef)
		}
	}
	return refs
}

const (
	// keepBuf is the largest buffer a session keeps while it has nothing to say.
	keepBuf = 16 << 10
	// writeChunk is how much one write, with one write timeout, hands to the
	// socket: a client that reads, if slowly, makes progress.
	writeChunk = 64 << 10
)

// outbox is the bounded output of one session. Any goroutine may put a reply
// into it; a writer goroutine exists only while there is something to write, so
// an idle session costs none, and all replies of one batch leave in one write.
type outbox struct {
	conn    net.Conn
	limit   int
	timeout time.Duration
	left    func(n int) // told how many answers have left for the socket
	fail    func()      // ends the session

	mu      sync.Mutex
	idle    sync.Cond  // signalled when the writer stops
	pending output     // put and not yet taken by the writer
	spare   output     // the writer's other buffer
	writing bool       // a writer goroutine exists
	closed  bool       // nothing is accepted any more
	lost    []grantRef // grants whose frame was never handed to the socket
}

func newOutbox(conn net.Conn, limit int, timeout time.Duration, left func(int), fail func()) *outbox {
	o := &outbox{conn: conn, limit: limit, timeout: timeout, left: left, fail: fail}
	o.idle.L = &o.mu
	return o
}

// put appends one reply. It reports false when the session is closed, or is to
// be closed because its client does not read: then nothing was appended.
func (o *outbox) put(r *wire.Reply, grant grantRef) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.pending.buf) >= o.limit {
		return false
	}
	off := len(o.pending.buf)
	if r.Op == wire.OpMoved && off >= o.limit/2 {
		r.Text = nil // the address has been said; what counts is that all are answered
	}
	buf, err := wire.AppendReply(o.pending.buf, r)
	if err != nil {
		return false // a reply we cannot encode is a bug; the session closes
	}
	o.pending.buf = buf
	if r.Op != wire.OpHelloOK { // which takes no room
		o.pending.answers++
	}
	if r.Op == wire.OpAcquired {
		o.pending.marks = append(o.pending.marks, grantMark{off, grant})
	}
	return true
}

// flush sees to it that what was put gets written.
func (o *outbox) flush() {
	o.mu.Lock()
	start := !o.writing && !o.closed && len(o.pending.buf) > 0
	if start {
		o.writing = true
	}
	o.mu.Unlock()
	if start {
		go o.write()
	}
}

// write is the writer goroutine: it ends when there is nothing left to write
// or the socket has failed, and then the reader closes the session.
func (o *outbox) write() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pending.buf) > 0 && !o.closed {
		out := o.pending
		o.pending = o.spare
		o.mu.Unlock()
		n, err := o.send(out.buf)
		if err != nil {
			o.fail()
		}
		o.left(out.answers)
		o.mu.Lock()
		if err != nil {
			o.closed = true
			o.lost = append(o.lost, out.unsent(n)...)
		}
		out.reset()
		if cap(out.buf) > keepBuf {
			out = output{}
		}
		o.spare = out
	}
	o.writing = false
	o.idle.Broadcast()
}

// send hands b to the socket and says how much of it went.
func (o *outbox) send(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		m := 0
		_ = o.conn.SetWriteDeadline(time.Now().Add(o.timeout))
		m, err = o.conn.Write(b[n:min(n+writeChunk, len(b))])
		n += m
	}
	return n, err
}

// cut closes a connection without saying goodbye. A TLS connection would wait
// for a client that does not read, and so would everybody who ends a session.
func cut(conn net.Conn) {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = c.NetConn()
	}
	_ = conn.Close()
}

// drain waits until everything put so far is written or the socket failed.
// The write timeout bounds it.
func (o *outbox) drain() {
	o.flush()
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing {
		o.idle.Wait()
	}
}

// shut closes the connection and returns the grants whose Acquired frame was
// never handed to the socket. After it put accepts nothing.
func (o *outbox) shut() []grantRef {
	cut(o.conn)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for o.writing {
		o.idle.Wait()
	}
	lost := append(o.lost, o.pending.unsent(0)...)
	o.lost = nil
	o.pending, o.spare = output{}, output{}
	return lost
}
