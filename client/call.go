package client

import (
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// Where a call is on its way. Only possiblySent has a request that the server
// may know of; a call goes back from it to waiting by a Moved reply, or when
// the connection took not one byte of it.
type callState uint8

const (
	waiting      callState = iota // in Client.waiting or Client.urgent: no session
	queued                        // in session.out: not one byte was sent
	possiblySent                  // handed to the connection; in session.pending
	granted                       // of an acquire: A is here, the gate has not decided
	done                          // decided; nothing changes any more
)

// call is one request of any kind, from its submission to its one outcome. An
// acquire's call is the handle that a caller waits on. Everything but the first
// block is guarded by Client.mu.
type call struct {
	c         *Client
	op        wire.Op
	immediate bool  // of an acquire: wait 0 on the wire
	renew     bool  // of an acquire: the lock will renew itself
	lease     uint8 // seconds
	key       string
	owner     uint64
	token     uint64
	start     time.Duration
	horizon   time.Duration // of an acquire that waits: nothing is sent after it
	deadline  time.Duration // of the whole operation
	patience  time.Duration // of a call that may be repeated: until the next session is tried
	done      chan struct{} // closed when there is something to collect; nil if nobody waits
	then      func(*call)   // instead of done: called with the outcome, c.mu held

	timer
	state      callState
	hops       uint8         // Moved replies so far
	repeated   bool          // an earlier send may have been executed
	told       bool          // done is closed
	left       error         // the caller's context has ended
	grace      time.Duration // until when the answer to a cancel is awaited
	session    *session
	prev, next *call // in a waiting list
	list       *callList

	sentAt   time.Duration // read right before the bytes went
	waitSent uint8         // the wait that went onto the wire, in seconds

	reply     wire.Reply // the confirmed reply; Text is not kept
	kind      error      // nil, or why there is no confirmed success
	cause     error
	settledAt time.Duration // of a release
	until     time.Duration // with ErrIndeterminate: when a grant is over at the latest
}

// sendUntil is the last time at which the request may be sent.
func (k *call) sendUntil() time.Duration {
	if k.op == wire.OpAcquire && !k.immediate {
		return k.horizon
	}
	return k.deadline
}

// wireWait is the rest of the wait at now, rounded up to whole seconds.
func (k *call) wireWait(now time.Duration) uint8 {
	if k.op != wire.OpAcquire || k.immediate {
		return 0
	}
	return wholeSeconds(k.horizon - now)
}

// alarm acts on the call's next time: the end of sending, of patience, of the
// grace after a cancel, or of everything.
func (k *call) alarm(now time.Duration) {
	c := k.c
	switch k.state {
	case waiting, queued:
		if now < k.sendUntil() {
			c.schedule(&k.timer, k.sendUntil())
			return
		}
		kind, cause := c.notSent(k)
		c.settleUnsent(k, kind, cause)
	case possiblySent:
		if k.op != wire.OpAcquire {
			k.impatient(now)
			return
		}
		limit, why := k.deadline, errNoReply
		if k.left != nil && k.grace < limit {
			limit, why = k.grace, k.left
		}
		if now < limit {
			c.schedule(&k.timer, limit)
			return
		}
		// The protocol's rule for clients: its exact session is closed. What becomes of this
		// and the other calls is settled when the connection has reported what
		// it took and what it still brought.
		k.cause = why
		k.session.abort(why)
	case granted:
		if now < k.deadline {
			c.schedule(&k.timer, k.deadline)
			return
		}
		c.tooLate(k, errLateGrant)
	}
}

// impatient deals with a release, keep, query or ping without an answer: it may
// be repeated, so the session is not closed but only avoided.
func (k *call) impatient(now time.Duration) {
	c, s := k.c, k.session
	if now >= k.deadline {
		s.drop(k)
		s.suspect(now)
		c.settleUnanswered(k, errNoReply)
		c.pump(now)
		return
	}
	if now < k.sentAt+k.patience {
		c.schedule(&k.timer, min(k.sentAt+k.patience, k.deadline))
		return
	}
	s.drop(k)
	s.suspect(now)
	k.repeat()
	k.patience *= 2 // or a slow server would never be heard out
	c.log.Debug("no answer, trying another session", "op", opName(k.op), "key", k.key, "addr", s.addr)
	c.enqueue(k)
	c.pump(now)
}

// repeat makes the next send an attempt of its own. It gets a number of its own,
// because the next session may be the same: a late answer to the first attempt
// must not be taken for one to the second, which was sent later and would let a
// lock be believed in for longer.
func (k *call) repeat() {
	k.repeated = true
	k.owner = newOwner()
}

// settle ends a call. Needs c.mu. Exactly once per call.
func (c *Client) settle(k *call, kind, cause error) {
	c.unschedule(&k.timer)
	k.state = done
	k.kind, k.cause = kind, cause
	if k.op == wire.OpRelease && kind != nil {
		k.settledAt = c.now()
	}
	c.open--
	if k.then != nil {
		k.then(k)
	}
	k.tell()
	if c.closed && c.open == 0 {
		poke(c.idle)
	}
}

// tell lets the waiting caller look.
func (k *call) tell() {
	if k.done != nil && !k.told {
		k.told = true
		close(k.done)
	}
}

// settleUnsent ends a call that was definitely not executed.
func (c *Client) settleUnsent(k *call, kind, cause error) {
	k.list.remove(k)
	if k.session != nil {
		k.session.leave(k) // its entry in the session's queue is skipped
	}
	if k.repeated {
		// An earlier attempt may have been executed after all.
		if cause == nil {
			cause = kind
		}
		c.settleUnanswered(k, cause)
		return
	}
	if k.left != nil {
		kind = k.left
	}
	c.settle(k, kind, cause)
}

// settleUnanswered ends a call that may or may not have been executed.
func (c *Client) settleUnanswered(k *call, cause error) {
	if k.op == wire.OpQuery || k.op == wire.OpPing {
		c.settle(k, ErrUnavailable, cause) // asking changes nothing
		return
	}
	now := c.now()
	if k.op == wire.OpAcquire {
		lease := time.Duration(k.lease) * time.Second
		// The server began its wait after sentAt; the session's end takes the
		// request out of its queue as soon as it is noticed.
		k.until = max(now, k.sentAt+time.Duration(k.waitSent)*time.Second) + lease
		c.reclaim(k.key, k.owner, k.until)
	}
	c.settle(k, ErrIndeterminate, cause)
}

// callList is a FIFO of calls from which any can be taken in constant time.
type callList struct {
	first, last *call
	n           int
}

func (l *callList) push(k *call) {
	k.list, k.prev, k.next = l, l.last, nil
	if l.last != nil {
		l.last.next = k
	} else {
		l.first = k
	}
	l.last = k
	l.n++
}

func (l *callList) pushFront(k *call) {
	k.list, k.prev, k.next = l, nil, l.first
	if l.first != nil {
		l.first.prev = k
	} else {
		l.last = k
	}
	l.first = k
	l.n++
}

// remove is harmless on a nil list, which is where a call is that waits in none.
func (l *callList) remove(k *call) {
	if l == nil || k.list != l {
		return
	}
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		l.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	} else {
		l.last = k.prev
	}
	k.list, k.prev, k.next = nil, nil, nil
	l.n--
}

func (l *callList) pop() *call {
	k := l.first
	if k != nil {
		l.remove(k)
	}
	return k
}
