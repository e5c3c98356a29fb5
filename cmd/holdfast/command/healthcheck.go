package command

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

func (a *app) newHealthcheck() *cobra.Command {
	timeout, ready := 2*time.Second, false
	cmd := &cobra.Command{
		Use:     "healthcheck",
		GroupID: "node",
		Short:   "Ask the local node whether it is healthy",
		Long: `Ask the local node's HTTP side whether the process is alive, or with --ready whether
it leads or follows a leader. Exit code 0 if so, 1 if not, 69 if it does not answer.
The address is that of --admin-addr or HOLDFAST_ADMIN_ADDR, as for "holdfast serve";
of an address that listens everywhere, loopback is asked.`,
		Args: exactArgs(),
	}
	admin := "127.0.0.1:7422"
	shared, local := settings.New(), settings.NewLocal()
	shared.String(&admin, "admin-addr", "host:port", "Admin address of the node")
	local.Bool(&ready, "ready", "Ask whether it is ready instead of alive")
	local.Duration(&timeout, "timeout", "How long to wait for the answer")
	a.bind(cmd, shared, local)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.load(shared); err != nil {
			return err
		}
		if err := checkListen("admin-addr", admin); err != nil {
			return err
		}
		path := "/livez"
		if ready {
			path = "/readyz?verbose"
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		code, body, err := get(ctx, reachable(admin), path)
		if err != nil {
			return failf(ExitUnavailable, "%v", err)
		}
		if code != http.StatusOK {
			return failf(ExitNotHeld, "%s", strings.TrimSpace(string(body)))
		}
		return nil
	}
	return cmd
}

// reachable turns an address that listens everywhere into one to dial.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
		return net.JoinHostPort(host, port)
	}
	return addr
}
