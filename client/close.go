package client

import (
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// closeTime bounds how long Close waits for answers.
const closeTime = time.Second

// Close ends the client. Acquires that were not sent fail with ErrClosed; those
// that may have been are taken out of the server's queues, and fail with
// ErrClosed or, when no answer comes, with ErrIndeterminate. Locks that are held
// are lost to this process at once, but not released: their keys stay taken until
// their leases end, unless the client was opened with WithReleaseOnClose. Close
// returns within about a second and leaves no goroutine behind; calling it again
// does nothing.
func (c *Client) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.over
		return
	}
	c.closed = true
	now := c.now()
	for l := range c.locks {
		if l.state != held {
			continue
		}
		l.finish(ErrClosed, true)
		if c.cfg.releaseOnClose {
			c.giveBack(l.key, l.token, now+closeTime)
		}
	}
	c.giveUpWaiting()
	for _, s := range c.sessions {
		for _, k := range s.pending {
			c.leave(k, ErrClosed, closeTime/2)
		}
		for _, k := range s.out[s.next:] {
			if k != nil && k.session == s {
				c.leave(k, ErrClosed, closeTime/2)
			}
		}
	}
	open := c.open
	c.unlock()

	if open > 0 {
		t := time.NewTimer(closeTime)
		select {
		case <-c.idle:
		case <-t.C:
		}
		t.Stop()
	}
	c.mu.Lock()
	for len(c.sessions) > 0 {
		s := c.sessions[0]
		s.fail(ErrClosed)
		c.later(func() { _ = s.raw.Close() })
	}
	c.giveUpWaiting()
	c.unlock()
	close(c.stop)
	c.end()
	c.wg.Wait()
	close(c.over)
}

// giveUpWaiting settles what waits for a session that will not come. Needs c.mu.
func (c *Client) giveUpWaiting() {
	for _, l := range []*callList{&c.urgent, &c.waiting} {
		for k := l.first; k != nil; k = l.first {
			c.settleUnsent(k, ErrClosed, nil)
		}
	}
}

// leave gives up an acquire whose caller goes, because of why. What was sent is
// cancelled, and the server has grace to answer. Needs c.mu.
func (c *Client) leave(k *call, why error, grace time.Duration) {
	if k.op != wire.OpAcquire || k.left != nil {
		return
	}
	switch k.state {
	case waiting, queued:
		var cause error
		if !c.anyUsable() {
			cause = c.whyNoLeader()
		}
		k.left = why
		c.settleUnsent(k, why, cause)
	case possiblySent:
		k.left, k.grace = why, c.now()+grace
		k.session.cancel(k.owner)
		c.schedule(&k.timer, min(k.grace, k.deadline))
	case granted:
		c.tooLate(k, why)
	}
}
