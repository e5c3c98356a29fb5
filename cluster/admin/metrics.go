package admin

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/holdfast-lock/holdfast/cluster"
	"github.com/holdfast-lock/holdfast/cluster/frontend"
)

// reading is what one scrape sees.
type reading struct {
	node    cluster.Status
	ready   bool
	grants  int
	clients frontend.Stats
}

// metric is one time series: its value is taken out of the reading at scrape time.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	label      string // "name=value", or empty
	value      func(*reading) float64
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

func is(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// nodeMetrics describe the replica.
var nodeMetrics = []metric{
	{"holdfast_ready", "1 if the node leads or follows a leader heard lately, as /readyz.", gauge, "", func(r *reading) float64 { return is(r.ready) }},
	{"holdfast_leader", "1 on the node that leads and serves clients.", gauge, "", func(r *reading) float64 { return is(r.node.Role == cluster.RoleLeader) }},
	{"holdfast_term", "Raft term; each election raises it.", gauge, "", func(r *reading) float64 { return float64(r.node.Term) }},
	{"holdfast_epoch", "Log index at which the current leader took over; changes with each change of leader.", gauge, "", func(r *reading) float64 { return float64(r.node.Epoch) }},
	{"holdfast_applied_index", "Log index up to which the lock table is applied.", gauge, "", func(r *reading) float64 { return float64(r.node.AppliedIndex) }},
	{"holdfast_commit_index", "Log index up to which the node knows entries to be committed.", gauge, "", func(r *reading) float64 { return float64(r.node.CommitIndex) }},
	{"holdfast_last_index", "Last log index on this node's disk.", gauge, "", func(r *reading) float64 { return float64(r.node.LastIndex) }},
	{"holdfast_cluster_clock_seconds", "Cluster time, on which leases are measured, as applied here.", gauge, "", func(r *reading) float64 { return r.node.Clock.Seconds() }},
	{"holdfast_leader_contact_age_seconds", "Time since the leader was heard; 0 on the leader, -1 if never.", gauge, "", func(r *reading) float64 {
		if r.node.LastContact < 0 {
			return -1
		}
		return r.node.LastContact.Seconds()
	}},
	{"holdfast_members", "Members of the newest configuration.", gauge, "suffrage=voter", func(r *reading) float64 { return float64(members(r, true)) }},
	{"holdfast_members", "Members of the newest configuration.", gauge, "suffrage=nonvoter", func(r *reading) float64 { return float64(members(r, false)) }},
	{"holdfast_grants", "Locks held, as applied here.", gauge, "", func(r *reading) float64 { return float64(r.grants) }},
}

func members(r *reading, voters bool) (n int) {
	for _, m := range r.node.Members {
		if m.Voter == voters {
			n++
		}
	}
	return n
}

// clientMetrics describe the front end. Counters begin with the process.
var clientMetrics = []metric{
	{"holdfast_sessions", "Client connections open.", gauge, "", func(r *reading) float64 { return float64(r.clients.Sessions) }},
	{"holdfast_waiters", "Acquires that wait in a queue.", gauge, "", func(r *reading) float64 { return float64(r.clients.Waiters) }},
	{"holdfast_queue_operations", "Operations that wait for a log entry.", gauge, "", func(r *reading) float64 { return float64(r.clients.Queue) }},
	{"holdfast_sessions_accepted_total", "Client connections accepted.", counter, "", func(r *reading) float64 { return float64(r.clients.SessionsAccepted) }},
	{"holdfast_sessions_turned_away_total", "Client connections closed at once because --max-sessions was reached.", counter, "", func(r *reading) float64 { return float64(r.clients.SessionsTurnedAway) }},
	{"holdfast_acquires_total", "Acquires read while leading.", counter, "", func(r *reading) float64 { return float64(r.clients.Acquires) }},
	answer("acquired", func(s *frontend.Stats) uint64 { return s.Granted }),
	answer("timeout", func(s *frontend.Stats) uint64 { return s.Timeouts }),
	answer("busy", func(s *frontend.Stats) uint64 { return s.Busy }),
	answer("released", func(s *frontend.Stats) uint64 { return s.Released }),
	answer("kept", func(s *frontend.Stats) uint64 { return s.Kept }),
	answer("not_held", func(s *frontend.Stats) uint64 { return s.NotHeld }),
	answer("moved", func(s *frontend.Stats) uint64 { return s.Moved }),
	answer("refused", func(s *frontend.Stats) uint64 { return s.Refused }),
	answer("unknown", func(s *frontend.Stats) uint64 { return s.Unknown }),
	{"holdfast_grants_expired_total", "Grants that ended because their lease did.", counter, "", func(r *reading) float64 { return float64(r.clients.Expired) }},
	{"holdfast_grants_orphaned_total", "Grants given back at once because their client was gone.", counter, "", func(r *reading) float64 { return float64(r.clients.Orphans) }},
	{"holdfast_grant_wait_seconds_total", "Time from an acquire to its grant, summed over all grants.", counter, "", func(r *reading) float64 { return float64(r.clients.WaitedMS) / 1000 }},
	{"holdfast_log_entries_total", "Log entries proposed.", counter, "", func(r *reading) float64 { return float64(r.clients.Entries) }},
	{"holdfast_log_operations_total", "Operations in the log entries proposed.", counter, "", func(r *reading) float64 { return float64(r.clients.EntryOps) }},
}

// answer is one series of the answers clients got.
func answer(name string, count func(*frontend.Stats) uint64) metric {
	return metric{
		"holdfast_answers_total", "Requests by how they ended; unknown: the connection was closed because their fate was not known.",
		counter, "answer=" + name, func(r *reading) float64 { return float64(count(&r.clients)) },
	}
}

// collector reads the node once per scrape. It keeps nothing between scrapes.
type collector struct {
	cfg    Config
	series []series
	build  prometheus.Metric
}

type series struct {
	metric
	desc *prometheus.Desc
}

func register(cfg Config) error {
	c := &collector{cfg: cfg}
	build := prometheus.NewDesc("holdfast_build_info", "Always 1; the labels say which program runs.", nil,
		prometheus.Labels{"version": cfg.Version, "goversion": runtime.Version()})
	c.build = prometheus.MustNewConstMetric(build, gauge, 1)
	for _, list := range [][]metric{nodeMetrics, clientMetrics} {
		for _, m := range list {
			var labels prometheus.Labels
			if name, value, ok := strings.Cut(m.label, "="); ok {
				labels = prometheus.Labels{name: value}
			}
			c.series = append(c.series, series{m, prometheus.NewDesc(m.name, m.help, nil, labels)})
		}
	}
	for _, add := range []prometheus.Collector{
		c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := cfg.Registry.Register(add); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- c.build.Desc()
	for _, s := range c.series {
		out <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	r := reading{
		node: c.cfg.Node.Status(), ready: c.cfg.Node.Ready() == nil,
		grants: c.cfg.Locks.Len(), clients: c.cfg.Clients.Stats(),
	}
	out <- c.build
	for _, s := range c.series {
		out <- prometheus.MustNewConstMetric(s.desc, s.kind, s.value(&r))
	}
}
