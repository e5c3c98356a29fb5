package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

// devConfig is what "holdfast dev" can be told.
type devConfig struct {
	basePort int
	dataDir  string
	restart  bool
	grace    time.Duration
	extra    []string // further arguments for each "holdfast serve"
}

// The ports of a local cluster: client, peer and admin of the first node from
// the base on, each further node ten higher.
const (
	devNodes    = 3
	devBasePort = 7420
	devStride   = 10
)

func (a *app) newDev() *cobra.Command {
	cfg := devConfig{basePort: devBasePort, grace: 5 * time.Second}
	cmd := &cobra.Command{
		Use:     "dev [flags] [-- SERVE-FLAG...]",
		GroupID: "node",
		Short:   "Run a cluster of three nodes on this machine",
		Long: `Run a cluster of three nodes on this machine: three "holdfast serve" processes on
loopback. Ctrl-C stops all of them. Their data outlives them: started again on the
same directory, the cluster goes on where it was.

A node that dies, say by kill -9, is left dead and reported, unless --restart is
given. Arguments after "--" are handed to every "holdfast serve".`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
				return usagef("%q is one argument too many; flags for the nodes go after \"--\"", args[0])
			}
			return nil
		},
	}
	t := settings.NewLocal()
	t.Int(&cfg.basePort, "base-port", "Client port of n1; its peer and admin ports are the next two, n2 is 10 higher, n3 20")
	t.String(&cfg.dataDir, "data-dir", "dir", "Directory for the nodes' data and logs; one under the system's temporary directory, named by user and port, unless given")
	t.Bool(&cfg.restart, "restart", "Start a node that died again")
	t.Duration(&cfg.grace, "shutdown-grace", "How long the nodes may take to stop before they are killed")
	a.bind(cmd, t)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg.extra = args
		return a.dev(cmd.Context(), cfg)
	}
	return cmd
}

// dev runs the three nodes until a signal comes or all of them are dead.
func (a *app) dev(ctx context.Context, cfg devConfig) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	if last := cfg.basePort + (devNodes-1)*devStride + 2; cfg.basePort < 1 || last > 65535 {
		return usagef("--base-port %d: use 1 to %d", cfg.basePort, 65535-(last-cfg.basePort))
	}
	dir, err := devDir(cfg)
	if err != nil {
		return configf("--data-dir: %v", err)
	}
	if err := checkPortsFree(cfg.basePort); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return failf(ExitFailed, "find our own executable: %v", err)
	}
	fmt.Fprintf(a.Out, "data and logs in %s\n", dir)

	fleet := newFleet(cfg.restart)
	defer fleet.stop(cfg.grace, signals)
	for i := range devNodes {
		n := newDevNode(exe, dir, cfg, i)
		n.environ = a.environ
		if err := fleet.start(n); err != nil {
			return failf(ExitFailed, "start %s: %v", n.id, err)
		}
		fmt.Fprintln(a.Out, n.describe())
	}
	return a.watchFleet(ctx, cfg, fleet, signals)
}

// watchFleet reports what happens to the nodes until it is time to stop.
func (a *app) watchFleet(ctx context.Context, cfg devConfig, fleet *fleet, signals <-chan os.Signal) error {
	lookCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	leads := make(chan string, 1)
	go awaitLeader(lookCtx, fleet.adminAddrs(), leads)
	for {
		select {
		case id := <-leads:
			a.greet(cfg, id)
		case end := <-fleet.ends:
			fmt.Fprintln(a.Err, end.text)
			if fleet.alive() == 0 && !cfg.restart {
				return failf(ExitFailed, "no node is left")
			}
		case <-signals:
			fmt.Fprintln(a.Out, "stopping")
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// greet prints what to do with a cluster that works now.
func (a *app) greet(cfg devConfig, leader string) {
	endpoints := strings.Join(devAddrs(cfg.basePort, 0), ",")
	flag, admin := "", ""
	if cfg.basePort != devBasePort {
		flag = " --endpoints " + endpoints
		admin = " --admin-endpoints " + strings.Join(devAddrs(cfg.basePort, 2), ",")
	}
	self := os.Args[0]
	fmt.Fprintf(a.Out, `
%s leads. Clients may use any of %s

Try, in another terminal:
  %s lock deploy%s -- sh -c 'echo "I hold deploy with token $HOLDFAST_TOKEN"'
  %s status%s

Ctrl-C stops all nodes.
`, leader, endpoints, self, flag, self, admin)
}

// devAddrs are the addresses of all nodes: client for offset 0, peer 1, admin 2.
func devAddrs(base, offset int) []string {
	addrs := make([]string, devNodes)
	for i := range addrs {
		addrs[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(base+i*devStride+offset))
	}
	return addrs
}

// devDir makes the data directory, and refuses a predictable name in a shared
// temporary directory that somebody else made before us.
func devDir(cfg devConfig) (string, error) {
	dir := cfg.dataDir
	if dir == "" {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-dev-%d-%d", os.Getuid(), cfg.basePort))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if cfg.dataDir != "" {
		return dir, nil
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || ok && int(st.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s belongs to somebody else: name another directory", dir)
	}
	return dir, nil
}

// checkPortsFree reports every port of the cluster that is taken.
func checkPortsFree(base int) error {
	var errs []error
	for offset, use := range []string{"client", "peer", "admin"} {
		for i, addr := range devAddrs(base, offset) {
			ln, err := net.Listen("tcp", addr)
			if err == nil {
				ln.Close()
				continue
			}
			errs = append(errs, fmt.Errorf("%s, the %s address of n%d: %w", addr, use, i+1, err))
		}
	}
	switch len(errs) {
	case 0:
		return nil
	case 3 * devNodes:
		return configf("all ports from %d on are taken: another \"holdfast dev\" seems to run; stop it, or use --base-port", base)
	}
	var lines []string
	for _, err := range errs {
		why := err.Error()
		if errors.Is(err, syscall.EADDRINUSE) {
			why = strings.SplitN(why, ": ", 2)[0] + ", is taken"
		}
		lines = append(lines, why)
	}
	return configf("%s; stop what uses it, or use --base-port", strings.Join(lines, "; "))
}
