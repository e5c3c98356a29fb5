package command

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/client"
)

func (a *app) newQuery() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "query KEY",
		GroupID: "lock",
		Short:   "Show whether a key is held, and for how long",
		Long:    `Show the key's active grant and how many wait for it. The exit code is 1 if the key is free.`,
		Args:    exactArgs("KEY"),
	}
	endpoints, shared := a.endpointsFlag(cmd)
	out := a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.load(shared); err != nil {
			return err
		}
		return a.withClient(cmd.Context(), *endpoints, func(ctx context.Context, cl *client.Client) error {
			state, err := cl.Query(ctx, args[0])
			if err != nil {
				return err
			}
			if state.Token == 0 {
				a.code = ExitNotHeld
			}
			return a.printState(*out, args[0], state)
		})
	}
	return cmd
}

func (a *app) printState(out, key string, state client.State) error {
	result := struct {
		Key         string `json:"key"`
		Held        bool   `json:"held"`
		Token       string `json:"token,omitempty"`
		Owner       string `json:"owner,omitempty"`
		RemainingMS int64  `json:"remaining_ms"`
		Waiters     int    `json:"waiters"`
	}{Key: key, Held: state.Token != 0, RemainingMS: state.Remaining.Milliseconds(), Waiters: int(state.Waiters)}
	if result.Held {
		result.Token = strconv.FormatUint(state.Token, 10)
		result.Owner = strconv.FormatUint(state.Owner, 10)
	}
	return a.print(out, result, func() error {
		w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "KEY\tSTATE\tTOKEN\tREMAINING\tWAITERS")
		if result.Held {
			fmt.Fprintf(w, "%s\theld\t%s\t%.1fs\t%d\n", key, result.Token, state.Remaining.Seconds(), result.Waiters)
		} else {
			fmt.Fprintf(w, "%s\tfree\t-\t-\t%d\n", key, result.Waiters)
		}
		return w.Flush()
	})
}
