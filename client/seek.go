package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

const (
	// growLoad is how many calls the least busy session must have before another
	// one is opened: a few callers share one connection best.
	growLoad = 32
	// maxAcquires is how many unanswered acquires a session may have. It stays
	// well below the bound at which a server stops reading a session, or a release
	// would be stuck behind the acquires that wait for it.
	maxAcquires = 8192
	// maxHops is how often one call follows a redirect.
	maxHops = 16
	// maxHints is how many addresses are remembered beyond the endpoints.
	maxHints = 8

	firstBackoff = 20 * time.Millisecond
	lastBackoff  = 400 * time.Millisecond
	growPause    = time.Second
)

// addr is what is known of one address. Guarded by Client.mu.
type addr struct {
	endpoint bool          // given to Open: never forgotten
	busy     bool          // being tried
	fails    int           // in a row
	next     time.Duration // not tried before
	err      error         // of the latest failure
}

// failed makes an address wait longer after each failure, with jitter. Needs c.mu.
func (c *Client) failed(address string, err error, now time.Duration) {
	a := c.addrs[address]
	if a == nil {
		return
	}
	a.err = err
	pause := min(firstBackoff<<min(a.fails, 10), lastBackoff)
	a.fails++
	a.next = now + pause/2 + rand.N(pause/2)
}

// proven forgets the failures of an address that works. Needs c.mu.
func (c *Client) proven(address string) {
	if a := c.addrs[address]; a != nil {
		a.fails, a.next, a.err = 0, 0, nil
	}
}

// hint notes where a server says the leader is. A fresh address is tried at
// once; one that was just tried keeps to a pace, so that stale hints and servers
// that point to each other cause no storm. Needs c.mu.
func (c *Client) hint(leader, from string, now time.Duration) {
	if leader == "" || leader == from {
		return
	}
	if _, _, err := net.SplitHostPort(leader); err != nil {
		c.log.Warn("a server sent an unusable leader address", "addr", leader, "from", from)
		return
	}
	a := c.addrs[leader]
	if a == nil {
		c.forgetHint()
		a = &addr{}
		c.addrs[leader] = a
	}
	if a.next > now+firstBackoff {
		a.next = now + firstBackoff
	}
	poke(c.seek)
}

// forgetHint makes room for one more hint. Needs c.mu.
func (c *Client) forgetHint() {
	hints, worst, most := 0, "", -1
	for name, a := range c.addrs {
		if a.endpoint {
			continue
		}
		hints++
		if !a.busy && a.fails > most {
			worst, most = name, a.fails
		}
	}
	if hints >= maxHints && worst != "" {
		delete(c.addrs, worst)
	}
}

// startSeeking starts the search for the leader unless it runs. Needs c.mu.
func (c *Client) startSeeking() {
	if c.seeking {
		poke(c.seek)
		return
	}
	c.seeking = true
	c.wg.Add(1)
	go c.seekLeader()
}

// seekLeader tries every known address, each at its own pace, until a call no
// longer waits for a leader. One runs at a time.
func (c *Client) seekLeader() {
	defer c.wg.Done()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		c.mu.Lock()
		if !c.wantsLeader() {
			c.seeking = false
			c.mu.Unlock()
			return
		}
		now := c.now()
		sleep := lastBackoff
		for name, a := range c.addrs {
			switch {
			case a.busy:
			case a.next <= now:
				a.busy = true
				c.wg.Add(1)
				go c.try(ctx, name)
			default:
				sleep = min(sleep, a.next-now)
			}
		}
		c.mu.Unlock()
		t.Reset(sleep)
		select {
		case <-t.C:
		case <-c.seek:
		case <-ctx.Done():
		}
	}
}

// try asks one address whether it leads, for the search.
func (c *Client) try(ctx context.Context, address string) {
	defer c.wg.Done()
	g, moved, err := c.greet(ctx, address)
	c.mu.Lock()
	defer c.unlock()
	now := c.now()
	a := c.addrs[address]
	a.busy = false
	switch {
	case g != nil && c.wantsLeader():
		a.err = nil
		c.adopt(g, now)
	case g != nil:
		c.later(func() { _ = g.conn.Close() })
	case ctx.Err() != nil: // the search is over, this says nothing about the address
	case moved != nil:
		c.failed(address, moved, now)
		c.hint(moved.leader, address, now)
	default:
		c.failed(address, err, now)
	}
	poke(c.seek)
}

// grow opens a further session to the leader. Needs c.mu.
func (c *Client) grow(address string) {
	now := c.now()
	if c.growing || c.closed || now < c.growAt {
		return
	}
	c.growing = true
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		g, _, err := c.greet(c.ctx, address)
		c.mu.Lock()
		defer c.unlock()
		c.growing = false
		now := c.now()
		c.growAt = now + growPause
		switch {
		case g == nil:
			c.log.Debug("no further session", "addr", address, "reason", err)
		case c.closed || !c.leads(address):
			c.later(func() { _ = g.conn.Close() })
		default:
			c.growAt = now
			c.adopt(g, now)
		}
	}()
}

// leads reports whether a usable session to that address exists. Needs c.mu.
func (c *Client) leads(address string) bool {
	return slices.ContainsFunc(c.sessions, func(s *session) bool { return s.addr == address && s.usable() })
}

// whyNoLeader lists what the addresses answered. Needs c.mu.
func (c *Client) whyNoLeader() error {
	var all []error
	for name, a := range c.addrs {
		err := a.err
		if err == nil {
			err = errNoAnswerYet
		}
		all = append(all, fmt.Errorf("%s: %w", name, err))
	}
	slices.SortFunc(all, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return opaque{joined(all)}
}

// joined is errors.Join on one line.
type joined []error

func (j joined) Unwrap() []error { return j }
func (j joined) Error() string {
	s := ""
	for i, err := range j {
		if i > 0 {
			s += "; "
		}
		s += err.Error()
	}
	return s
}

var errNoAnswerYet = errors.New("no answer yet")
