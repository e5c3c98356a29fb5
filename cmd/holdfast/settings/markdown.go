package settings

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes the table's rows as Markdown tables, one per group.
func (t *Table) Markdown(w io.Writer) {
	group := "\x00"
	for _, s := range t.rows {
		if s.Group != group {
			if group != "\x00" {
				fmt.Fprintln(w) // ends the table before
			}
			group = s.Group
			t.heading(w, group)
		}
		def := "" // an empty cell: no default
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		kind := strings.ReplaceAll(s.Kind, "|", `\|`)
		if t.local {
			fmt.Fprintf(w, "| `--%s` | %s | %s | %s |\n", s.Name, kind, def, s.Usage)
			continue
		}
		fmt.Fprintf(w, "| `--%s` | `%s` | %s | %s | %s |\n", s.Name, s.Env(), kind, def, s.Usage)
	}
	if len(t.rows) > 0 {
		fmt.Fprintln(w)
	}
}

func (t *Table) heading(w io.Writer, group string) {
	if group != "" {
		fmt.Fprintf(w, "%s:\n\n", group)
	}
	if t.local {
		fmt.Fprintf(w, "| flag | value | default | meaning |\n|---|---|---|---|\n")
		return
	}
	fmt.Fprintf(w, "| flag | environment | value | default | meaning |\n|---|---|---|---|---|\n")
}
