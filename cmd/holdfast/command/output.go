package command

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

const (
	outputTable = "table"
	outputJSON  = "json"
)

// outputFlag adds -o, --output to a command.
func (a *app) outputFlag(cmd *cobra.Command) *string {
	out := outputTable
	t := settings.NewLocal()
	t.Choice(&out, "output", "How to print the result", outputTable, outputJSON).Short = "o"
	a.bind(cmd, t)
	return &out
}

// print writes the value as JSON if that was asked for, or calls table.
func (a *app) print(output string, value any, table func() error) error {
	if output != outputJSON {
		return table()
	}
	enc := json.NewEncoder(a.Out)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}
