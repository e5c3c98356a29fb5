package client

import (
	"context"
	"time"
)

// hold begins to look after a new lock; false when the client is closed.
func (c *Client) hold(l *Lock) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false
	}
	c.held[l] = struct{}{}
	c.mu.Unlock()
	l.mu.Lock()
	at := min(l.end-l.lease+l.lease/3, l.safeEnd())
	if !l.renews {
		at = l.safeEnd()
	}
	l.mu.Unlock()
	c.renewals.add(l, at)
	return true
}

// drop ends that.
func (c *Client) drop(l *Lock) {
	c.mu.Lock()
	delete(c.held, l)
	c.mu.Unlock()
	c.renewals.remove(l)
}

// background runs f if a slot is free. Clean-ups are best effort: the lease is
// the guarantee.
func (c *Client) background(slots chan struct{}, f func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	select {
	case slots <- struct{}{}:
	default:
		return
	}
	c.wg.Go(func() {
		defer func() { <-slots }()
		f(c.ctx)
	})
}

// settleUp lets the releases of unused grants that are under way finish, for at
// most closeGrace: a program that is interrupted while it waits for a lock ends
// right after, and the key should not stay taken for a whole lease. It takes
// every slot, so that none begins any more.
func (c *Client) settleUp() {
	t := time.NewTimer(closeGrace)
	defer t.Stop()
	for range cap(c.givebacks) {
		select {
		case c.givebacks <- struct{}{}:
		case <-t.C:
			return
		}
	}
}

// giveBack releases a grant that nobody uses.
func (c *Client) giveBack(key string, token uint64) {
	c.background(c.givebacks, func(ctx context.Context) {
		_, err := c.release(ctx, key, token)
		c.cfg.log.Info("gave back an unused grant", "key", key, "token", token, "err", err)
	})
}

// reclaimDelays are the pauses between looks for a grant that nobody heard of:
// soon, because its key is blocked meanwhile, and a few times, because the
// entry may still be on its way through an election.
var reclaimDelays = []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// reclaim looks whether an acquire of unknown fate was granted: the key's
// holder then is its owner number, and that exact token is released.
func (c *Client) reclaim(key string, owner uint64) {
	c.background(c.reclaims, func(ctx context.Context) {
		for _, d := range reclaimDelays {
			if c.sleep(d); ctx.Err() != nil {
				return
			}
			st, err := c.Query(ctx, key)
			if err == nil && st.Token != 0 && st.Owner == owner {
				_, err := c.release(ctx, key, st.Token)
				c.cfg.log.Info("gave back a grant of unknown fate", "key", key, "token", st.Token, "err", err)
				return
			}
		}
	})
}
