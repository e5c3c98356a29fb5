// Package settings turns one table of settings into command-line flags,
// environment variables, keys of a YAML file, help texts and documentation.
//
// Each row of the table is declared once, with its default and its meaning;
// everything else follows from it. The order of strength is
//
//	flag > environment > file > default
//
// Names are mechanical: the setting "node-id" is the flag --node-id, the
// environment variable HOLDFAST_NODE_ID and the file's key node-id.
package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Prefix begins the name of every environment variable.
const Prefix = "HOLDFAST_"

// Setting is one row of a table.
type Setting struct {
	Name    string // flag and key of the file, in kebab-case
	Group   string // heading it is listed under
	Kind    string // what a value looks like, in one word: "duration", "int", ...
	Usage   string // meaning, one sentence without a full stop
	Default string // as a user would type it; empty when there is none
	Short   string // one letter for the flag, if any
	NoFile  bool   // not a key of the file: the path of the file itself

	hint     string             // how a correct value looks, for error messages
	many     bool               // a list: the file may give a sequence or a mapping
	parse    func(string) error // checks the text and stores the value
	flagText *string            // what the command line said, if anything
}

// Env is the name of the setting's environment variable.
func (s *Setting) Env() string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Table is an ordered list of settings. Declare them with the methods String,
// Int and so on, then Bind them to a flag set and, once the flags are parsed,
// Load the other sources.
type Table struct {
	rows  []*Setting
	group string
	local bool
}

// New makes an empty table whose settings come from all sources.
func New() *Table { return &Table{} }

// NewLocal makes an empty table whose settings are flags only. It is for values
// that belong to one call, not to a process's configuration: a HOLDFAST_LEASE
// inherited from an outer "holdfast lock" must not set the lease of an inner one.
func NewLocal() *Table { return &Table{local: true} }

// Group begins a new heading for the settings declared after it.
func (t *Table) Group(title string) { t.group = title }

// Rows lists the settings in the order of their declaration.
func (t *Table) Rows() []*Setting { return t.rows }

// Local tells whether the settings of this table are flags only.
func (t *Table) Local() bool { return t.local }

// String declares a text setting. The value of *p at this moment is the default.
func (t *Table) String(p *string, name, kind, usage string) *Setting {
	return t.add(&Setting{Name: name, Kind: kind, Usage: usage, Default: *p, parse: func(text string) error {
		*p = text
		return nil
	}})
}

// Int declares a whole number of at least 0.
func (t *Table) Int(p *int, name, usage string) {
	t.add(&Setting{
		Name: name, Kind: "int", Usage: usage, Default: strconv.Itoa(*p),
		hint: "use a whole number of 0 or more, such as " + strconv.Itoa(max(*p, 1)),
		parse: func(text string) error {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return fmt.Errorf("%q is not a whole number of 0 or more", text)
			}
			*p = n
			return nil
		},
	})
}

// Uint64 declares a whole number of at least 0.
func (t *Table) Uint64(p *uint64, name, usage string) {
	t.add(&Setting{
		Name: name, Kind: "int", Usage: usage, Default: strconv.FormatUint(*p, 10),
		hint: "use a whole number of 0 or more, such as " + strconv.FormatUint(max(*p, 1), 10),
		parse: func(text string) error {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return fmt.Errorf("%q is not a whole number of 0 or more", text)
			}
			*p = n
			return nil
		},
	})
}

// Duration declares a length of time of at least 0.
func (t *Table) Duration(p *time.Duration, name, usage string) {
	t.add(&Setting{
		Name: name, Kind: "duration", Usage: usage, Default: FormatDuration(*p),
		hint: "use a number with a unit, such as 500ms, 10s or 2m",
		parse: func(text string) error {
			d, err := time.ParseDuration(text)
			if err != nil {
				return fmt.Errorf("%q is not a duration", text)
			}
			if d < 0 {
				return fmt.Errorf("%q is negative", text)
			}
			*p = d
			return nil
		},
	})
}

// Bool declares a switch; as a flag it needs no value.
func (t *Table) Bool(p *bool, name, usage string) {
	t.add(&Setting{
		Name: name, Kind: "bool", Usage: usage, Default: strconv.FormatBool(*p),
		hint: "use true or false",
		parse: func(text string) error {
			b, err := strconv.ParseBool(text)
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", text)
			}
			*p = b
			return nil
		},
	})
}

// Choice declares a text setting that takes one of a few values.
func (t *Table) Choice(p *string, name, usage string, choices ...string) *Setting {
	return t.add(&Setting{
		Name: name, Kind: strings.Join(choices, "|"), Usage: usage, Default: *p,
		hint: "use one of " + strings.Join(choices, ", "),
		parse: func(text string) error {
			for _, c := range choices {
				if text == c {
					*p = text
					return nil
				}
			}
			return fmt.Errorf("%q is not a choice", text)
		},
	})
}

// List declares a comma-separated list. In a file it may also be a sequence, or
// a mapping whose entries become "key=value".
func (t *Table) List(p *[]string, name, kind, usage string) {
	t.add(&Setting{
		Name: name, Kind: kind, Usage: usage, Default: strings.Join(*p, ","), many: true,
		parse: func(text string) error {
			var list []string
			for item := range strings.SplitSeq(text, ",") {
				if item = strings.TrimSpace(item); item != "" {
					list = append(list, item)
				}
			}
			*p = list
			return nil
		},
	})
}

func (t *Table) add(s *Setting) *Setting {
	if t.lookup(s.Name) != nil {
		panic("settings: " + s.Name + " is declared twice")
	}
	s.Group = t.group
	t.rows = append(t.rows, s)
	return s
}

func (t *Table) lookup(name string) *Setting {
	for _, s := range t.rows {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Bind adds a flag for every setting.
func (t *Table) Bind(fs *pflag.FlagSet) {
	for _, s := range t.rows {
		f := fs.VarPF(&flagValue{s}, s.Name, s.Short, s.Usage)
		if s.Kind == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// flagValue lets a setting be a pflag.Value.
type flagValue struct{ s *Setting }

func (v *flagValue) Set(text string) error {
	if err := v.s.parse(text); err != nil {
		return &Error{Setting: v.s.Name, Source: "--" + v.s.Name, Reason: err.Error(), Fix: v.s.hint}
	}
	v.s.flagText = &text
	return nil
}

func (v *flagValue) String() string {
	if v.s == nil {
		return ""
	}
	if v.s.flagText != nil {
		return *v.s.flagText
	}
	return v.s.Default
}

// Type names the kind of value in a usage text.
func (v *flagValue) Type() string { return v.s.Kind }

// FormatDuration writes a duration as a user would type it: "2m", not "2m0s".
func FormatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Error says which setting is wrong, where it was said, why, and what to do.
type Error struct {
	Setting string // name of the setting, or of the unknown key
	Source  string // "--node-id", "HOLDFAST_NODE_ID", "node-id in holdfast.yaml, line 3"
	Reason  string
	Fix     string // empty when the reason says it all
}

func (e *Error) Error() string {
	text := e.Source + ": " + e.Reason
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	return text
}
