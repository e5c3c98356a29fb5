// Package admin is a node's HTTP side, for operators and their tools: health,
// status, the locks held, metrics. It only reads. DESIGN.md says what each
// endpoint promises, METRICS.md lists the metrics.
package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-lock/holdfast/cluster"
	"github.com/holdfast-lock/holdfast/cluster/frontend"
	"github.com/holdfast-lock/holdfast/fsm"
)

// Node is what is read of the replica. *cluster.Node implements it. All methods
// may be called from any goroutine and return within a few seconds.
type Node interface {
	Status() cluster.Status
	Ready() error    // nil while the node leads, or follows a leader heard lately
	Liveness() error // nil if the main loop answers; never depends on a quorum
}

// Clients is what is read of the client front end. *frontend.Server implements
// it. All methods may be called from any goroutine.
type Clients interface {
	Stats() frontend.Stats
	Alive(d time.Duration) error // nil if the front end answers within d
	Waiters(keys []string) []int // acquires that wait for each of the keys
}

// Locks is what is read of the lock table. *fsm.Table implements it.
type Locks interface {
	Len() int
	Freeze() *fsm.Frozen
}

// Config is what the HTTP side of one node is made of. Node, Clients, Locks and
// Registry are required.
type Config struct {
	Node    Node
	Clients Clients
	Locks   Locks
	// Registry gets the node's metrics, those of the Go runtime and those of the
	// process, and is what /metrics shows. Nothing else may have registered
	// metrics of the same names there.
	Registry *prometheus.Registry
	// Version is the program's, shown in the status and in holdfast_build_info.
	Version string
	// Logger receives what went wrong while serving; nil discards it.
	Logger *slog.Logger
}

// Bounds of the server. Connections beyond maxConns are closed when accepted:
// probes and scrapers need a handful, and a flood must not cost the node memory.
const (
	maxConns       = 256
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 1 << 10 // no endpoint reads a body
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 60 * time.Second
	aliveWait      = 2 * time.Second // how long the front end may take to answer
)

// New registers the metrics and returns a server that is ready for Serve. It
// fails if something is missing or a metric's name is taken.
func New(cfg Config) (*http.Server, error) {
	switch {
	case cfg.Node == nil:
		return nil, errors.New("admin: Config.Node is missing")
	case cfg.Clients == nil:
		return nil, errors.New("admin: Config.Clients is missing")
	case cfg.Locks == nil:
		return nil, errors.New("admin: Config.Locks is missing")
	case cfg.Registry == nil:
		return nil, errors.New("admin: Config.Registry is missing: give it prometheus.NewRegistry()")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := register(cfg); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	h := &handler{cfg: cfg, scan: make(chan struct{}, 1)}
	conns := connLimit{max: maxConns}
	errorLog := slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn)
	return &http.Server{
		Handler:           h.routes(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
		ConnState:         conns.state,
	}, nil
}

// handler answers the requests.
type handler struct {
	cfg  Config
	scan chan struct{} // capacity 1: one walk over the lock table at a time
}

// endpoint is one path with the query parameters it understands.
type endpoint struct {
	path   string
	params []string
	serve  http.HandlerFunc
}

func (h *handler) endpoints() []endpoint {
	metrics := promhttp.HandlerFor(h.cfg.Registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(h.cfg.Logger.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
	return []endpoint{
		{"/livez", []string{"verbose"}, h.livez},
		{"/readyz", []string{"verbose"}, h.readyz},
		{"/v1/status", nil, h.status},
		{"/v1/locks", []string{"prefix", "after", "limit"}, h.locks},
		{"/metrics", nil, func(w http.ResponseWriter, r *http.Request) {
			// Scrapers may send parameters of their own, which are not ours to check.
			metrics.ServeHTTP(w, r)
		}},
	}
}

// routes is the handler for all paths. Everything is read-only, so any method but
// GET and HEAD is refused before a path is looked at.
func (h *handler) routes() http.Handler {
	endpoints := h.endpoints()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			fail(w, http.StatusMethodNotAllowed, "the method %s is not allowed: everything here is read with GET", printable(r.Method))
			return
		}
		i := slices.IndexFunc(endpoints, func(e endpoint) bool { return e.path == r.URL.Path })
		if i < 0 {
			paths := make([]string, len(endpoints))
			for i, e := range endpoints {
				paths[i] = e.path
			}
			fail(w, http.StatusNotFound, "there is nothing at %s; there are %v", printable(r.URL.Path), paths)
			return
		}
		if e := endpoints[i]; e.path != "/metrics" && !checkParams(w, r, e.params) {
			return
		}
		endpoints[i].serve(w, r)
	})
}

// connLimit closes connections beyond a number.
type connLimit struct {
	max  int64
	open atomic.Int64
}

func (l *connLimit) state(c net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		if l.open.Add(1) > l.max {
			_ = c.Close() // the server's read fails at once and ends with StateClosed
		}
	case http.StateClosed, http.StateHijacked:
		l.open.Add(-1)
	}
}
