package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/client"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

// benchConfig is one call of "holdfast bench".
type benchConfig struct {
	clients  int
	sessions int
	keys     string
	duration time.Duration
	warmup   time.Duration
}

// benchResult is what a run measured. Times are those of the acquire alone.
type benchResult struct {
	Clients  int            `json:"clients"`
	Sessions int            `json:"sessions"`
	Keys     string         `json:"keys"`
	Seconds  float64        `json:"seconds"`
	Pairs    int64          `json:"pairs"` // locks taken and given back
	PerS     float64        `json:"pairs_per_s"`
	P50      float64        `json:"lock_p50_ms"`
	P99      float64        `json:"lock_p99_ms"`
	P999     float64        `json:"lock_p999_ms"`
	Max      float64        `json:"lock_max_ms"`
	Errors   int            `json:"errors"`
	Kinds    map[string]int `json:"error_kinds,omitempty"`
}

const (
	keysOwn    = "own"
	keysShared = "shared"
)

func (a *app) newBench() *cobra.Command {
	cfg := benchConfig{clients: 64, sessions: 2, keys: keysOwn, duration: 10 * time.Second, warmup: time.Second}
	cmd := &cobra.Command{
		Use:     "bench",
		GroupID: "cluster",
		Short:   "Measure a running cluster: locks per second, and how long one takes",
		Long: `Take and give back locks as fast as a number of callers can, through the client
library, and print lock+unlock per second and how long the lock took. With own keys
nobody waits for anybody; with a shared key every lock is a hand-over to the next in
the queue. Any error makes the exit code 1.`,
		Args: exactArgs(),
	}
	endpoints, shared := a.endpointsFlag(cmd)
	t := settings.NewLocal()
	t.Int(&cfg.clients, "clients", "Callers at once, each with one lock at a time")
	t.Int(&cfg.sessions, "sessions", "Connections that the callers share, 1 to 16")
	t.Choice(&cfg.keys, "keys", "Whether each caller has its own key or all share one", keysOwn, keysShared)
	t.Duration(&cfg.duration, "duration", "How long to measure")
	t.Duration(&cfg.warmup, "warmup", "How long to run before that")
	a.bind(cmd, t)
	out := a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.load(shared); err != nil {
			return err
		}
		if cfg.clients < 1 || cfg.duration <= 0 {
			return usagef("--clients and --duration have to be more than 0")
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		cl, err := dial(ctx, *endpoints, client.WithSessions(cfg.sessions))
		if err != nil {
			return err
		}
		defer cl.Close()
		result := bench(ctx, cl, cfg)
		if err := a.print(*out, result, func() error { return a.benchTable(result) }); err != nil {
			return err
		}
		if result.Errors > 0 {
			return failf(ExitNotHeld, "%d requests failed", result.Errors)
		}
		return nil
	}
	return cmd
}

// longestLock is the highest time the histograms tell from others.
const longestLock = 5 * time.Minute

// benchWorker is one caller; its fields are its own until it has ended.
type benchWorker struct {
	key   string
	times *hdrhistogram.Histogram // microseconds
	kinds map[string]int
	pairs int64
}

func bench(ctx context.Context, cl *client.Client, cfg benchConfig) benchResult {
	// The measured window ends all waits: what is unfinished then counts neither
	// as a lock nor as an error.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := time.AfterFunc(cfg.warmup+cfg.duration, cancel)
	defer over.Stop()
	var measuring atomic.Bool
	warm := time.AfterFunc(cfg.warmup, func() { measuring.Store(true) })
	defer warm.Stop()

	begin := time.Now().Add(cfg.warmup)
	run := rand.Text()[:8]
	workers := make([]*benchWorker, cfg.clients)
	var wg sync.WaitGroup
	for i := range workers {
		w := &benchWorker{key: "bench/" + run, kinds: map[string]int{}, times: hdrhistogram.New(1, longestLock.Microseconds(), 3)}
		if cfg.keys == keysOwn {
			w.key = fmt.Sprintf("%s/%d", w.key, i)
		}
		workers[i] = w
		wg.Go(func() { w.run(ctx, cl, &measuring) })
	}
	wg.Wait()
	return summarise(cfg, min(time.Since(begin), cfg.duration), workers)
}

func (w *benchWorker) run(ctx context.Context, cl *client.Client, measuring *atomic.Bool) {
	for ctx.Err() == nil {
		counted := measuring.Load()
		start := time.Now()
		lock, err := cl.Acquire(ctx, w.key, client.WithWait(client.MaxWait))
		if err != nil {
			w.failed(ctx, err)
			continue
		}
		took := time.Since(start)
		// The release is not cut off: it would leave the key taken.
		if err := lock.Release(context.WithoutCancel(ctx)); err != nil {
			w.failed(context.Background(), err)
			continue
		}
		if counted && ctx.Err() == nil {
			w.pairs++
			_ = w.times.RecordValue(min(took.Microseconds(), longestLock.Microseconds()))
		}
	}
}

// failed counts an error, unless it only says that the run is over.
func (w *benchWorker) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	kind := err.Error()
	var e *client.Error
	if errors.As(err, &e) && e.Kind != nil {
		kind = e.Op + ": " + e.Kind.Error()
	}
	w.kinds[kind]++
	// A cluster without a leader is not to be asked in a tight loop.
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
}

func summarise(cfg benchConfig, took time.Duration, workers []*benchWorker) benchResult {
	all := hdrhistogram.New(1, longestLock.Microseconds(), 3)
	r := benchResult{Clients: cfg.clients, Sessions: cfg.sessions, Keys: cfg.keys, Seconds: took.Seconds(), Kinds: map[string]int{}}
	for _, w := range workers {
		all.Merge(w.times)
		r.Pairs += w.pairs
		for kind, n := range w.kinds {
			r.Kinds[kind] += n
			r.Errors += n
		}
	}
	ms := func(us int64) float64 { return float64(us) / 1000 }
	r.PerS = float64(r.Pairs) / max(r.Seconds, 1e-9)
	r.P50, r.P99, r.P999 = ms(all.ValueAtQuantile(50)), ms(all.ValueAtQuantile(99)), ms(all.ValueAtQuantile(99.9))
	r.Max = ms(all.Max())
	return r
}

func (a *app) benchTable(r benchResult) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLIENTS\tKEYS\tSECONDS\tLOCK+UNLOCK/S\tLOCK P50\tP99\tP99.9\tMAX\tERRORS")
	fmt.Fprintf(w, "%d\t%s\t%.1f\t%.0f\t%.2f ms\t%.2f ms\t%.2f ms\t%.2f ms\t%d\n",
		r.Clients, r.Keys, r.Seconds, r.PerS, r.P50, r.P99, r.P999, r.Max, r.Errors)
	if err := w.Flush(); err != nil {
		return err
	}
	for kind, n := range r.Kinds {
		fmt.Fprintf(a.Err, "holdfast: %d times: %s\n", n, kind)
	}
	return nil
}
