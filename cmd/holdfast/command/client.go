package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/client"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

// clientErrors are the exit codes of the client's errors. An error that is two
// of them, say timed out because unreachable, gets the first.
var clientErrors = []struct {
	err  error
	code int
}{
	{client.ErrIndeterminate, ExitIndeterminate},
	{client.ErrTimeout, ExitTimeout},
	{client.ErrBusy, ExitBusy},
	{client.ErrNotHeld, ExitNotHeld},
	{client.ErrRefused, ExitRefused},
	{client.ErrUnavailable, ExitUnavailable},
	{client.ErrClosed, ExitUnavailable},
	{context.DeadlineExceeded, ExitUnavailable},
}

// endpointsFlag adds --endpoints to a command; the table has to be loaded.
func (a *app) endpointsFlag(cmd *cobra.Command) (*[]string, *settings.Table) {
	endpoints := devAddrs(devBasePort, 0)
	t := settings.New()
	t.List(&endpoints, "endpoints", "host:port,...", "Client addresses of the nodes; any of them will do, but with all of them a dead one does no harm")
	a.bind(cmd, t)
	return &endpoints, t
}

// dial opens a client; an address that is none is bad configuration.
func dial(ctx context.Context, endpoints []string, opts ...client.Option) (*client.Client, error) {
	if len(endpoints) == 0 {
		return nil, configf("--endpoints is empty: name the nodes' client addresses, for example 127.0.0.1:7420")
	}
	for _, addr := range endpoints {
		if err := checkListen("endpoints", addr); err != nil {
			return nil, err
		}
	}
	return client.Open(ctx, endpoints, opts...)
}

// clientLocker is the locker of the real client.
type clientLocker struct{ *client.Client }

func openClient(ctx context.Context, endpoints []string) (locker, error) {
	cl, err := dial(ctx, endpoints)
	if err != nil {
		return nil, err
	}
	return clientLocker{cl}, nil
}

func (l clientLocker) Acquire(ctx context.Context, key string, wait, lease time.Duration) (heldLock, error) {
	lock, err := l.Client.Acquire(ctx, key, client.WithWait(wait), client.WithLease(lease))
	if err != nil {
		return nil, err
	}
	return &clientLock{Lock: lock}, nil
}

// clientLock is the client's lock as a supervised command needs it: used from
// one goroutine.
type clientLock struct {
	*client.Lock
	end time.Time // of the lease, as it was when the lock was last held
}

// Remaining goes on to count the lease of a lock that is lost before its end:
// the command then still has that long to end in good order.
func (l *clientLock) Remaining() time.Duration {
	if end := l.Expires(); l.end.IsZero() || l.Err() == nil {
		l.end = end
	}
	return time.Until(l.end)
}
