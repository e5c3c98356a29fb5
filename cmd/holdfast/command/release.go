package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/client"
)

func (a *app) newRelease() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "release KEY TOKEN",
		GroupID: "lock",
		Short:   "Give back exactly this grant",
		Long: `Give back the grant of this token. The exit code is 1 if that is not the key's active
grant, because it was given back before, ran out, or never was; nothing changes then.`,
		Args: exactArgs("KEY", "TOKEN"),
	}
	endpoints, shared := a.endpointsFlag(cmd)
	out := a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.load(shared); err != nil {
			return err
		}
		token, err := parseToken(args[1])
		if err != nil {
			return err
		}
		return a.withClient(cmd.Context(), *endpoints, func(ctx context.Context, cl *client.Client) error {
			if err := cl.ReleaseToken(ctx, args[0], token); err != nil {
				return err
			}
			result := struct {
				Key      string `json:"key"`
				Token    string `json:"token"`
				Released bool   `json:"released"`
			}{args[0], args[1], true}
			return a.print(*out, result, func() error {
				_, err := fmt.Fprintf(a.Out, "released %s\n", args[0])
				return err
			})
		})
	}
	return cmd
}
