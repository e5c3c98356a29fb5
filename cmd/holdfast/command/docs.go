package command

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// The lines between which the generated tables stand in a document.
const (
	docsBegin = "<!-- flags:begin -->"
	docsEnd   = "<!-- flags:end -->"
)

// newDocs makes the hidden command that writes the flags' tables.
func (a *app) newDocs() *cobra.Command {
	return &cobra.Command{
		Use:    "docs [FILE]",
		Short:  "Print the tables of all flags, or put them into FILE between its markers",
		Hidden: true,
		Args:   cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			tables := a.flagTables()
			if len(args) == 0 {
				_, err := a.Out.Write(tables)
				return err
			}
			text, err := os.ReadFile(args[0])
			if err != nil {
				return usagef("%v", err)
			}
			updated, err := replaceTables(text, tables)
			if err != nil {
				return usagef("%s: %v", args[0], err)
			}
			if bytes.Equal(text, updated) {
				return nil
			}
			return os.WriteFile(args[0], updated, 0o644)
		},
	}
}

// flagTables writes the settings of every command as Markdown.
func (a *app) flagTables() []byte {
	var b bytes.Buffer
	var last *cobra.Command
	for _, ct := range a.tables {
		if ct.cmd.Hidden {
			continue
		}
		if ct.cmd != last {
			last = ct.cmd
			fmt.Fprintf(&b, "### %s\n\n%s.\n\n", ct.cmd.CommandPath(), ct.cmd.Short)
		}
		ct.table.Markdown(&b)
	}
	return b.Bytes()
}

// replaceTables puts the tables between the markers of a document.
func replaceTables(text, tables []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(docsBegin+"\n"))
	_, after, ok2 := bytes.Cut(rest, []byte(docsEnd))
	if !ok || !ok2 {
		return nil, fmt.Errorf("it lacks the lines %s and %s", docsBegin, docsEnd)
	}
	return bytes.Join([][]byte{before, []byte(docsBegin + "\n"), tables, []byte(docsEnd), after}, nil), nil
}
