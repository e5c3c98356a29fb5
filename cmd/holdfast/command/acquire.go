package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/client"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

// grantInfo is a grant as acquire and keep print it.
type grantInfo struct {
	Key         string    `json:"key"`
	Token       string    `json:"token"` // text, as JSON numbers are not exact everywhere
	Expires     time.Time `json:"expires"`
	RemainingMS int64     `json:"remaining_ms"`
}

func (a *app) newAcquire() *cobra.Command {
	wait, lease := 30*time.Second, 15*time.Second
	cmd := &cobra.Command{
		Use:     "acquire KEY",
		GroupID: "lock",
		Short:   "Take a lock and print its token",
		Long: `Take a lock and print its token and the time at which its lease ends. Nothing renews
it: use "holdfast keep" before that, and "holdfast release" when done. To run a command
under a lock, "holdfast lock" does all of it.`,
		Args: exactArgs("KEY"),
	}
	endpoints, shared := a.endpointsFlag(cmd)
	t := settings.NewLocal()
	t.Duration(&wait, "wait", "How long to wait for the lock, up to 255s; 0s tries once")
	t.Duration(&lease, "lease", "How long the lock is held without a sign of life, in whole seconds from 1s to 255s")
	a.bind(cmd, t)
	out := a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.load(shared); err != nil {
			return err
		}
		if err := errors.Join(checkWait(wait), checkLease(lease)); err != nil {
			return err
		}
		return a.withClient(cmd.Context(), *endpoints, func(ctx context.Context, cl *client.Client) error {
			lock, err := cl.Acquire(ctx, args[0], client.WithWait(wait), client.WithLease(lease), client.WithoutRenewal())
			if err != nil {
				return err
			}
			return a.printGrant(*out, args[0], lock.Token(), lock.Expires())
		})
	}
	return cmd
}

func (a *app) printGrant(out, key string, token uint64, expires time.Time) error {
	g := grantInfo{
		Key: key, Token: strconv.FormatUint(token, 10),
		Expires: expires.Round(time.Millisecond), RemainingMS: time.Until(expires).Milliseconds(),
	}
	return a.print(out, g, func() error {
		w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "KEY\tTOKEN\tEXPIRES")
		fmt.Fprintf(w, "%s\t%s\t%s\n", g.Key, g.Token, g.Expires.Format(time.RFC3339))
		return w.Flush()
	})
}

// withClient calls f with a client. A signal ends ctx, and the exit code tells.
func (a *app) withClient(ctx context.Context, endpoints []string, f func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() {
		select {
		case sig := <-signals:
			number, _ := sig.(syscall.Signal)
			cancel(&exitError{code: ExitSignal + int(number)})
		case <-ctx.Done():
		}
	}()
	cl, err := dial(ctx, endpoints)
	if err == nil {
		defer cl.Close()
		err = f(ctx, cl)
	}
	var interrupted *exitError
	if err != nil && errors.As(context.Cause(ctx), &interrupted) && !errors.Is(err, client.ErrIndeterminate) {
		return interrupted
	}
	return err
}

// parseToken reads a token as acquire prints it.
func parseToken(text string) (uint64, error) {
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return 0, usagef("%q is not a token: it is a whole number above 0, as acquire prints it", text)
	}
	return token, nil
}
