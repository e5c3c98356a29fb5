package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/client"
)

func (a *app) newPing() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ping",
		GroupID: "cluster",
		Short:   "Ask the leader for a sign of life",
		Args:    exactArgs(),
	}
	endpoints, shared := a.endpointsFlag(cmd)
	out := a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.load(shared); err != nil {
			return err
		}
		return a.withClient(cmd.Context(), *endpoints, func(ctx context.Context, cl *client.Client) error {
			start := time.Now()
			if err := cl.Ping(ctx); err != nil {
				return err
			}
			took := time.Since(start)
			result := struct {
				RoundTripMS float64 `json:"round_trip_ms"`
			}{float64(took.Microseconds()) / 1000}
			return a.print(*out, result, func() error {
				_, err := fmt.Fprintf(a.Out, "the leader answered in %.2f ms\n", result.RoundTripMS)
				return err
			})
		})
	}
	return cmd
}
