package command

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/supervise"
)

// newLeash makes the hidden command that "holdfast lock" runs beside the locked
// command, to end it should the lock's own process be killed.
func (a *app) newLeash() *cobra.Command {
	return &cobra.Command{
		Use:    "leash GRACE",
		Hidden: true,
		Args:   exactArgs("GRACE"),
		RunE: func(_ *cobra.Command, args []string) error {
			grace, err := time.ParseDuration(args[0])
			if err != nil {
				return usagef("%v", err)
			}
			return supervise.Leash(a.In, a.Out, grace)
		},
	}
}
