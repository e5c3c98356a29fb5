package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

var errNotHeld = errors.New("not held")

var clientErrors = []struct {
	err  error
	code int
}{
	{errNotHeld, ExitNotHeld},
}

func openClient(ctx context.Context, endpoints []string) (locker, error) {
	return nil, failf(ExitUnavailable, "no client yet")
}

// endpointsFlag adds --endpoints to a command; the table has to be loaded.
func (a *app) endpointsFlag(cmd *cobra.Command) (*[]string, *settings.Table) {
	endpoints := devAddrs(devBasePort, 0)
	t := settings.New()
	t.List(&endpoints, "endpoints", "host:port,...", "Client addresses of the nodes; any of them will do, but with all of them a dead one does no harm")
	a.bind(cmd, t)
	return &endpoints, t
}
