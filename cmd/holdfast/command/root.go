// Package command is the command line of holdfast, one file per subcommand.
// Every subcommand declares its settings in a settings.Table and returns its
// failures as errors; the exit code is made from them in one place, exit.go.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

// Streams is what a command reads and writes instead of the process's own
// files, so that a test can look.
type Streams struct {
	In       *os.File
	Out, Err io.Writer
}

// app is one invocation of the program.
type app struct {
	Streams
	environ []string
	root    *cobra.Command
	tables  []commandTable

	openLocker func(ctx context.Context, endpoints []string) (locker, error)
	leash      []string // command line of the process that watches over a locked command

	code int // exit code of a run without error: "lock" passes its command's on
}

// commandTable is the settings of one command, in the order of declaration.
type commandTable struct {
	cmd   *cobra.Command
	table *settings.Table
}

// Main runs the program with the process's own arguments and returns its exit
// code.
func Main() int {
	return Run(context.Background(), os.Args[1:], os.Environ(), Streams{os.Stdin, os.Stdout, os.Stderr})
}

// Run runs one command line and returns its exit code. Errors are written to
// std.Err, one line each.
func Run(ctx context.Context, args, environ []string, std Streams) int {
	return newApp(environ, std).run(ctx, args)
}

func newApp(environ []string, std Streams) *app {
	a := &app{
		Streams: std, environ: environ,
		openLocker: openClient, leash: []string{ownExecutable(), "leash"},
	}
	a.root = a.newRoot()
	return a
}

func (a *app) run(ctx context.Context, args []string) int {
	a.root.SetArgs(args)
	err := a.root.ExecuteContext(ctx)
	if err == nil {
		return a.code
	}
	code, text := explain(err)
	if text != "" {
		fmt.Fprintln(a.Err, "holdfast: "+text)
	}
	return code
}

func (a *app) newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "A replicated lock service: leases with fencing tokens",
		Long: `holdfast is a replicated lock service. Three nodes agree on who holds which key
until when; a client at any of them reaches the leader.

  holdfast dev                          start three nodes on this machine
  holdfast lock KEY -- COMMAND ARG...   run a command while holding a lock`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q; see holdfast --help", args[0])
			}
			cmd.SetOut(a.Err)
			_ = cmd.Help()
			return &exitError{code: ExitUsage}
		},
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(
		&cobra.Group{ID: "node", Title: "Running nodes:"},
		&cobra.Group{ID: "lock", Title: "Locks:"},
		&cobra.Group{ID: "cluster", Title: "Looking at a cluster:"},
	)
	root.AddCommand(
		a.newServe(), a.newDev(), a.newHealthcheck(),
		a.newLock(), a.newAcquire(), a.newRelease(), a.newKeep(), a.newQuery(),
		a.newStatus(), a.newPing(), a.newBench(),
		a.newVersion(), a.newCompletion(), a.newDocs(), a.newLeash(),
		helpExitCodes(), helpConfiguration(),
	)
	return root
}

// flagError sorts what the flag parser refuses: a bad value of a setting is bad
// configuration, anything else is bad usage.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var bad *settings.Error
	if !errors.As(err, &bad) {
		return usagef("%v; see %s --help", err, cmd.CommandPath())
	}
	if cmd.Annotations[configured] != "" {
		return bad
	}
	return usagef("%v", bad)
}

// configured marks commands that a configuration file and variables can set.
const configured = "configured"

// bind makes the table's settings flags of the command.
func (a *app) bind(cmd *cobra.Command, tables ...*settings.Table) {
	for _, t := range tables {
		t.Bind(cmd.Flags())
		a.tables = append(a.tables, commandTable{cmd, t})
	}
	cmd.Flags().SortFlags = false
}

// load brings the environment into the table.
func (a *app) load(t *settings.Table) error {
	return t.Load(settings.Sources{Environ: a.environ, Known: a.knownVariables()})
}

// loadFile brings the file, if flag or environment names one, and the
// environment into the table.
func (a *app) loadFile(t *settings.Table, path string) error {
	if path == "" {
		path = a.variable("HOLDFAST_CONFIG")
	}
	return t.Load(settings.Sources{Environ: a.environ, Known: a.knownVariables(), File: path})
}

// variable looks up an environment variable; the last one counts, as for a shell.
func (a *app) variable(name string) (text string) {
	for _, pair := range a.environ {
		if n, value, _ := strings.Cut(pair, "="); n == name {
			text = value
		}
	}
	return text
}

// knownVariables are the HOLDFAST_* names that are no mistake anywhere: the
// settings of all commands, since an environment is shared, and what "holdfast
// lock" gives its command.
func (a *app) knownVariables() []string {
	known := []string{envKey, envToken, envLease}
	for _, ct := range a.tables {
		if ct.table.Local() {
			continue
		}
		for _, s := range ct.table.Rows() {
			known = append(known, s.Env())
		}
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// exactArgs is cobra.ExactArgs with a message that names what is missing.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing; usage: %s", names[len(args)], cmd.UseLine())
		case len(args) > len(names):
			return usagef("%q is one argument too many; usage: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

// ownExecutable is a path to this very program, also after the file was
// replaced by a newer version.
func ownExecutable() string {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self
	}
	if exe, err := os.Executable(); err == nil {
		return exe
	}
	return os.Args[0]
}
