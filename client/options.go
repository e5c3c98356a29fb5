package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
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

	transport    = 5 * time.Second // of every operation, beyond its wait
	defaultDial  = time.Second
	maxSessions  = 16
	closeGrace   = time.Second // for grants that are being given back
	cancelGrace  = time.Second // for the answer to a cancel
	cleanupSlots = 1024        // background clean-ups of each kind at a time
)

type config struct {
	sessions int
	dialTime time.Duration
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	tls      *tls.Config
	label    string
	log      *slog.Logger
	now      func() time.Duration // the clock of all deadlines
}

// Option changes how a Client works.
type Option func(*config)

// WithSessions sets how many connections to the leader all requests share, 1
// to 16; the default is 2.
func WithSessions(n int) Option { return func(c *config) { c.sessions = n } }

// WithDialTimeout bounds one attempt to connect; the default is 1 s.
func WithDialTimeout(d time.Duration) Option { return func(c *config) { c.dialTime = d } }

// WithDialer replaces the way connections are made. It is called with the host
// name each time, and must return when its context ends: Close waits for it.
func WithDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.dial = dial }
}

// WithTLS speaks TLS on every connection.
func WithTLS(t *tls.Config) Option { return func(c *config) { c.tls = t } }

// WithLabel sets what operators see beside this client's locks, at most 255
// bytes; the default is host/program/pid.
func WithLabel(label string) Option { return func(c *config) { c.label = label } }

// WithLogger receives what goes on behind the scenes; the default is silence.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.log = l } }

// withClock replaces the clock in tests.
func withClock(now func() time.Duration) Option { return func(c *config) { c.now = now } }

func newConfig(opts []Option) (config, error) {
	c := config{
		sessions: 2, dialTime: defaultDial, label: defaultLabel(),
		log: slog.New(slog.DiscardHandler), now: boot,
		dial: (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}).DialContext,
	}
	for _, o := range opts {
		o(&c)
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

// defaultLabel is host/program/pid, made to fit whatever the host and the
// program are called.
func defaultLabel() string {
	host, _ := os.Hostname()
	program := ""
	if len(os.Args) > 0 {
		program = filepath.Base(os.Args[0])
	}
	pid := fmt.Sprintf("/%d", os.Getpid())
	name := strings.ReplaceAll(host+"/"+program, "\n", " ")
	return strings.ToValidUTF8(name[:min(len(name), wire.MaxLabelLen-len(pid))], "") + pid
}

type acquireConfig struct {
	wait  time.Duration
	lease time.Duration
	renew bool
}

// AcquireOption changes one acquire.
type AcquireOption func(*acquireConfig)

// WithWait sets how long to wait for the key, 0 to 255 s; the default is 30 s.
// 0 is one immediate attempt.
func WithWait(d time.Duration) AcquireOption { return func(a *acquireConfig) { a.wait = d } }

// WithLease sets how long the servers protect the lock after the last sign of
// life, 1 to 255 s; the default is 15 s. Parts of a second are rounded up.
func WithLease(d time.Duration) AcquireOption { return func(a *acquireConfig) { a.lease = d } }

// WithoutRenewal leaves the renewing of the lease to Lock.Keep.
func WithoutRenewal() AcquireOption { return func(a *acquireConfig) { a.renew = false } }

func newAcquireConfig(key string, opts []AcquireOption) (acquireConfig, error) {
	a := acquireConfig{wait: DefaultWait, lease: DefaultLease, renew: true}
	for _, o := range opts {
		o(&a)
	}
	var err error
	switch {
	case a.wait < 0 || a.wait > MaxWait:
		err = fmt.Errorf("wait of %s: use 0 to %s", a.wait, MaxWait)
	case a.lease < MinLease || a.lease > MaxLease:
		err = fmt.Errorf("lease of %s: use %s to %s", a.lease, MinLease, MaxLease)
	default:
		err = wire.ValidKey(key)
	}
	if err != nil {
		return a, &Error{Op: "acquire", Key: key, Kind: ErrRefused, Cause: err}
	}
	a.lease = time.Duration(wholeSeconds(a.lease)) * time.Second
	return a, nil
}

// wholeSeconds rounds up to what fits the wire.
func wholeSeconds(d time.Duration) uint8 {
	return uint8(min(max((d+time.Second-1)/time.Second, 0), 255))
}
