package client

import (
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// maxOrphans bounds how many acquires of unknown outcome are looked after at a
// time; beyond it the lease alone frees the key.
const maxOrphans = 4096

// reclaimPauses are between the looks: the server may only just be executing the
// request, or not have noticed yet that its session is gone.
var reclaimPauses = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second}

// orphan is an acquire that was answered with ErrIndeterminate and may have been
// granted. Best effort: the lease remains the guarantee. Guarded by Client.mu.
type orphan struct {
	c     *Client
	key   string
	owner uint64
	until time.Duration // by then a grant has ended by itself
	looks int
	timer
}

// reclaim looks whether the grant was made after all, and gives it back. Needs
// c.mu.
func (c *Client) reclaim(key string, owner uint64, until time.Duration) {
	if c.closed || c.orphans >= maxOrphans {
		return
	}
	c.orphans++
	o := &orphan{c: c, key: key, owner: owner, until: until}
	o.what = o
	o.alarm(c.now())
}

// alarm asks who holds the key. The question waits for a leader as long as it
// takes, so that the answer comes as soon as there is one.
func (o *orphan) alarm(now time.Duration) {
	c := o.c
	if c.closed || now >= o.until {
		c.orphans--
		return
	}
	o.looks++
	c.submit(&call{
		op: wire.OpQuery, key: o.key, owner: newOwner(), start: now, deadline: o.until, patience: maxPatience, then: o.look,
	})
}

// look takes the answer.
func (o *orphan) look(k *call) {
	c := o.c
	switch {
	case k.kind == nil && k.reply.Token != 0 && k.reply.Holder == o.owner:
		c.orphans--
		c.log.Debug("giving back a grant that nobody heard of", "key", o.key, "token", k.reply.Token)
		c.giveBack(o.key, k.reply.Token, o.until)
	case o.looks <= len(reclaimPauses) && !c.closed:
		c.schedule(&o.timer, c.now()+reclaimPauses[o.looks-1])
	default:
		c.orphans--
	}
}

// giveBack releases a grant that nobody will use, by its exact token, in the
// background. Needs c.mu.
func (c *Client) giveBack(key string, token uint64, until time.Duration) {
	now := c.now()
	k := c.releaseCall(key, token, now, max(until, now+transport))
	if c.closed {
		k.deadline = now + closeTime
	}
	k.then = func(k *call) {
		c.log.Debug("unused grant given back", "key", key, "token", token, "err", k.kind)
	}
	c.submit(k)
}
