package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cluster"
	"github.com/holdfast-lock/holdfast/cluster/admin"
	"github.com/holdfast-lock/holdfast/cluster/frontend"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

func (a *app) newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "serve",
		GroupID: "node",
		Short:   "Run one node of a cluster",
		Long: `Run one node of a cluster until SIGINT or SIGTERM.

The same --peers is given to every node. See "holdfast help configuration" for
environment variables and the configuration file.`,
		Example: `  holdfast serve --node-id n1 --data-dir /var/lib/holdfast \
    --client-addr 10.0.0.1:7420 --peer-addr 10.0.0.1:7421 \
    --peers n1=10.0.0.1:7421,n2=10.0.0.2:7421,n3=10.0.0.3:7421`,
		Args:        exactArgs(),
		Annotations: map[string]string{configured: "yes"},
	}
	var cfg serveConfig
	var check bool
	table, local := serveSettings(&cfg), settings.NewLocal()
	local.Bool(&check, "check-config", "Validate the configuration and exit: 0 if it is good, 78 if not")
	a.bind(cmd, local, table)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.loadFile(table, cfg.file); err != nil {
			return err
		}
		if err := cfg.finish(); err != nil {
			return err
		}
		if check {
			fmt.Fprintf(a.Out, "the configuration of node %s is good\n", cfg.node.NodeID)
			return nil
		}
		plain := a.newLogger(cfg.logFormat, cfg.logLevel)
		logger := plain.With("node", cfg.node.NodeID)
		cfg.node.Logger, cfg.frontend.Logger = plain, logger // the former adds the node's id itself
		return serve(cmd.Context(), cfg, logger)
	}
	return cmd
}

func (a *app) newLogger(format, level string) *slog.Logger {
	var opts slog.HandlerOptions
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // one of the choices
	opts.Level = l
	if format == "json" {
		return slog.New(slog.NewJSONHandler(a.Err, &opts))
	}
	return slog.New(slog.NewTextHandler(a.Err, &opts))
}

// serve runs a node until a signal, the end of ctx, or its own failure. After a
// failure it returns at once, without waiting for anything: a disk that hangs
// would otherwise keep the process, and with it a dead leader, alive.
func serve(ctx context.Context, cfg serveConfig, log *slog.Logger) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)

	clients, err := net.Listen("tcp", cfg.clientAddr)
	if err != nil {
		return failf(ExitFailed, "listen for clients: %v; change --client-addr or end what uses it", err)
	}
	defer clients.Close()
	operators, err := net.Listen("tcp", cfg.adminAddr)
	if err != nil {
		return failf(ExitFailed, "listen for HTTP: %v; change --admin-addr or end what uses it", err)
	}
	defer operators.Close()
	node, err := cluster.Open(cfg.node)
	if err != nil {
		return failf(ExitFailed, "%s", flagNames(err.Error()))
	}
	front := frontend.New(cfg.frontend, node.Table(), node)
	web, err := admin.New(admin.Config{
		Node: node, Clients: front, Locks: node.Table(),
		Registry: prometheus.NewRegistry(), Version: version, Logger: log,
	})
	if err != nil {
		return failf(ExitFailed, "set up the HTTP side: %v", err)
	}

	ended := make(chan error, 2)
	go func() { ended <- front.Serve(clients) }()
	go func() { ended <- web.Serve(operators) }()
	if err := node.Start(front); err != nil {
		return failf(ExitFailed, "start: %v", err)
	}
	log.Info("serving", "version", version, "clients", clients.Addr().String(), "peers", cfg.node.PeerAddr,
		"admin", operators.Addr().String(), "data", cfg.node.DataDir, "pid", os.Getpid())
	notifySystemd(log, daemon.SdNotifyReady)

	select {
	case err := <-node.Failed():
		return failf(ExitFailed, "node %s stops: %v", cfg.node.NodeID, err)
	case err := <-ended:
		return failf(ExitFailed, "node %s stops: %v", cfg.node.NodeID, err)
	case sig := <-signals:
		log.Info("stopping", "signal", sig.String(), "grace", cfg.grace)
	case <-ctx.Done():
		log.Info("stopping", "why", ctx.Err())
	}
	notifySystemd(log, daemon.SdNotifyStopping)

	stopped := make(chan error, 1)
	go func() { stopped <- stopServing(cfg.grace, node, front, web) }()
	late := time.NewTimer(cfg.grace)
	defer late.Stop()
	select {
	case err := <-stopped:
		if err != nil {
			log.Warn("stopped, but not everything in good order", "err", err)
		}
	case <-late.C:
		log.Warn("the grace is over; stopping at once", "grace", cfg.grace)
	case sig := <-signals:
		log.Warn("stopping at once", "signal", sig.String())
	case err := <-node.Failed():
		return failf(ExitFailed, "node %s failed while it stopped: %v", cfg.node.NodeID, err)
	}
	return nil
}

// stopServing hands over and closes in an order that costs clients least: no new
// sessions, then a new leader, then everyone who waits is sent to it.
func stopServing(grace time.Duration, node *cluster.Node, front *frontend.Server, web *http.Server) error {
	begin := time.Now()
	until := func(share float64) (context.Context, context.CancelFunc) {
		return context.WithDeadline(context.Background(), begin.Add(time.Duration(share*float64(grace))))
	}
	front.Close()
	transfer, cancel := until(0.4)
	defer cancel()
	_ = node.TransferLeadership(transfer) // the node logs it; alone, it has nobody to hand over to
	drain, cancel := until(0.7)
	defer cancel()
	errFront := front.Shutdown(drain)
	rest, cancel := until(0.95)
	defer cancel()
	errNode := node.Shutdown(rest)
	return errors.Join(errFront, errNode, web.Close())
}

// notifySystemd tells a supervising systemd how we are; without one it does
// nothing.
func notifySystemd(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot notify systemd", "err", err)
	}
}
