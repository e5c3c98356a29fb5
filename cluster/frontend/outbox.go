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
	buf   []byte
	marks []grantMark
}

func (o *output) reset() { o.buf, o.marks = o.buf[:0], o.marks[:0] }

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

// keepBuf is the largest buffer a session keeps while it has nothing to say.
const keepBuf = 16 << 10

// outbox is the bounded output of one session. Any goroutine may put a reply
// into it; a writer goroutine exists only while there is something to write, so
// an idle session costs none, and all replies of one batch leave in one write.
type outbox struct {
	conn    net.Conn
	limit   int
	timeout time.Duration

	mu      sync.Mutex
	idle    sync.Cond  // signalled when the writer stops
	pending output     // put and not yet taken by the writer
	spare   output     // the writer's other buffer
	writing bool       // a writer goroutine exists
	closed  bool       // nothing is accepted any more
	lost    []grantRef // grants whose frame was never handed to the socket
}

func newOutbox(conn net.Conn, limit int, timeout time.Duration) *outbox {
	o := &outbox{conn: conn, limit: limit, timeout: timeout}
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
	buf, err := wire.AppendReply(o.pending.buf, r)
	if err != nil {
		return false // a reply we cannot encode is a bug; the session closes
	}
	o.pending.buf = buf
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
		_ = o.conn.SetWriteDeadline(time.Now().Add(o.timeout))
		n, err := o.conn.Write(out.buf)
		o.mu.Lock()
		if err != nil {
			o.closed = true
			o.lost = append(o.lost, out.unsent(n)...)
			_ = o.conn.Close() // wakes the reader, which ends the session
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
	_ = o.conn.Close()
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
