package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/client"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

func (a *app) newKeep() *cobra.Command {
	lease := 15 * time.Second
	cmd := &cobra.Command{
		Use:     "keep KEY TOKEN",
		GroupID: "lock",
		Short:   "Renew the lease of exactly this grant",
		Long: `Renew the lease of the grant of this token: it starts anew, with this length. The
exit code is 1 if that is not the key's active grant.`,
		Args: exactArgs("KEY", "TOKEN"),
	}
	endpoints, shared := a.endpointsFlag(cmd)
	t := settings.NewLocal()
	t.Duration(&lease, "lease", "How long the lock is held from now on without a sign of life, in whole seconds from 1s to 255s")
	a.bind(cmd, t)
	out := a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.load(shared); err != nil {
			return err
		}
		if err := checkLease(lease); err != nil {
			return err
		}
		token, err := parseToken(args[1])
		if err != nil {
			return err
		}
		return a.withClient(cmd.Context(), *endpoints, func(ctx context.Context, cl *client.Client) error {
			expires, err := cl.KeepToken(ctx, args[0], token, lease)
			if err != nil {
				return err
			}
			return a.printGrant(*out, args[0], token, expires)
		})
	}
	return cmd
}
