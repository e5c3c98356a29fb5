package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// Limits and defaults.
const (
	MaxWait      = 255 * time.Second
	MinLease     = time.Second
	MaxLease     = 255 * time.Second
	DefaultWait  = 30 * time.Second
	DefaultLease = 15 * time.Second

	transport       = 5 * time.Second // of every operation, beyond its wait
	defaultDial     = time.Second
	defaultSessions = 2
	maxSessions     = 16
	cancelGrace     = 500 * time.Millisecond // for the answer to a cancel
	maxPatience     = time.Second            // for an answer that may be asked for again
	minPatience     = 100 * time.Millisecond
)

type config struct {
	sessions       int
	dialTime       time.Duration
	dial           func(ctx context.Context, network, addr string) (net.Conn, error)
	tls            *tls.Config
	label          string
	log            *slog.Logger
	now            func() time.Duration // the clock of all deadlines
	releaseOnClose bool
}

// Option changes how a Client works.
type Option func(*config)

// WithSessions sets how many connections to the leader all requests may share, 1
// to 16; the default is 2. Further ones than the first are opened under load.
func WithSessions(n int) Option { return func(c *config) { c.sessions = n } }

// WithDialTimeout bounds one attempt to connect and greet; the default is 1 s.
func WithDialTimeout(d time.Duration) Option { return func(c *config) { c.dialTime = d } }

// WithDialer replaces the way connections are made. It is given the host name
// each time, network is "tcp", and it has to heed ctx.
func WithDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.dial = dial }
}

// WithTLS speaks TLS on every connection; an empty ServerName becomes the host of
// the address that is dialled.
func WithTLS(t *tls.Config) Option { return func(c *config) { c.tls = t } }

// WithLabel sets what operators see beside this client's locks, at most 255
// bytes; the default is host/program/pid, and "" sends none.
func WithLabel(label string) Option { return func(c *config) { c.label = label } }

// WithLogger receives what goes on behind the scenes; the default is silence.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.log = l } }

// WithReleaseOnClose makes Close release the locks that are still held.
func WithReleaseOnClose() Option { return func(c *config) { c.releaseOnClose = true } }

// withClock replaces the clock in tests.
func withClock(now func() time.Duration) Option { return func(c *config) { c.now = now } }

func newConfig(opts []Option) (config, error) {
	c := config{
		sessions: defaultSessions, dialTime: defaultDial, label: defaultLabel(),
		log: slog.New(slog.DiscardHandler), now: systemClock,
		dial: (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
		}}).DialContext,
	}
	for _, o := range opts {
		o(&c)
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.sessions < 1 || c.sessions > maxSessions {
		return c, fmt.Errorf("client: WithSessions(%d): use 1 to %d", c.sessions, maxSessions)
	}
	if c.dialTime <= 0 {
		return c, fmt.Errorf("client: WithDialTimeout(%s): use a positive duration", c.dialTime)
	}
	if _, err := wire.AppendRequest(nil, &wire.Request{Op: wire.OpHello, Version: wire.Version, Text: []byte(c.label)}); err != nil {
		return c, fmt.Errorf("client: WithLabel(%q): %w", c.label, err)
	}
	return c, nil
}

// defaultLabel is left out rather than refused where a name is no valid label.
func defaultLabel() string {
	host, _ := os.Hostname()
	label := fmt.Sprintf("%s/%s/%d", host, filepath.Base(os.Args[0]), os.Getpid())
	if _, err := wire.AppendRequest(nil, &wire.Request{Op: wire.OpHello, Version: wire.Version, Text: []byte(label)}); err != nil {
		return ""
	}
	return label
}

type acquireConfig struct {
	wait  time.Duration
	lease time.Duration
	renew bool
}

// AcquireOption changes one acquire.
type AcquireOption struct {
	set   func(a *acquireConfig, d time.Duration) // no closure, so that options cost no allocation
	value time.Duration
}

// WithWait sets how long to wait for the key, 0 to 255 s; the default is 30 s.
// 0 is one immediate attempt. The servers count in whole seconds, so the end of
// a wait may be reported up to a second late.
func WithWait(d time.Duration) AcquireOption {
	return AcquireOption{func(a *acquireConfig, d time.Duration) { a.wait = d }, d}
}

// WithLease sets how long the servers protect the lock after the last sign of
// life, 1 to 255 s; the default is 15 s. Parts of a second are rounded up.
func WithLease(d time.Duration) AcquireOption {
	return AcquireOption{func(a *acquireConfig, d time.Duration) { a.lease = d }, d}
}

// WithoutRenewal leaves the renewing of the lease to Lock.Keep.
func WithoutRenewal() AcquireOption {
	return AcquireOption{func(a *acquireConfig, _ time.Duration) { a.renew = false }, 0}
}

func newAcquireConfig(key string, opts []AcquireOption) (acquireConfig, error) {
	a := acquireConfig{wait: DefaultWait, lease: DefaultLease, renew: true}
	for _, o := range opts {
		if o.set != nil {
			o.set(&a, o.value)
		}
	}
	var err error
	switch {
	case a.wait < 0 || a.wait > MaxWait:
		err = fmt.Errorf("wait of %s: use 0 to %s", a.wait, MaxWait)
	default:
		err = checkLease(a.lease)
	}
	if err == nil {
		err = wire.ValidKey(key)
	}
	if err != nil {
		return a, &Error{Op: "acquire", Key: key, Kind: ErrRefused, Cause: err}
	}
	return a, nil
}

func checkLease(lease time.Duration) error {
	if lease < MinLease || lease > MaxLease {
		return fmt.Errorf("lease of %s: use %s to %s", lease, MinLease, MaxLease)
	}
	return nil
}

// wholeSeconds rounds up to what fits the wire.
func wholeSeconds(d time.Duration) uint8 {
	return uint8(min(max((d+time.Second-1)/time.Second, 0), 255))
}

// seconds is the other way round.
func seconds(n uint8) time.Duration { return time.Duration(n) * time.Second }

// patienceFor is how long one try of a keep may go unanswered, so that there is
// time for others within the lease.
func patienceFor(lease time.Duration) time.Duration {
	return min(max(lease/6, minPatience), maxPatience)
}
