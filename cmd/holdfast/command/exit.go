package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

// The exit codes. Those from 64 on are from sysexits.h, in its spirit.
const (
	ExitOK            = 0
	ExitNotHeld       = 1
	ExitUsage         = 64
	ExitUnavailable   = 69
	ExitFailed        = 70
	ExitBusy          = 73
	ExitLost          = 74
	ExitTimeout       = 75
	ExitIndeterminate = 76
	ExitRefused       = 77
	ExitConfig        = 78
	ExitCannotRun     = 126
	ExitNotFound      = 127
	ExitSignal        = 128 // plus the signal's number
)

// exitCodes is the documentation of the codes, and the order it is printed in.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{ExitOK, "done"},
	{ExitNotHeld, "not held: the token is not the key's active grant; for query, the key is free;\nfor healthcheck, the node is not healthy; for bench, a request failed"},
	{ExitUsage, "usage: the command line is wrong"},
	{ExitUnavailable, "no leader could be reached; nothing was done"},
	{ExitFailed, "a node stopped itself, because its storage failed or it could not go on safely"},
	{ExitBusy, "busy: refused for capacity"},
	{ExitLost, "the lock was lost while the command ran, whatever the command's own exit code"},
	{ExitTimeout, "timeout: the key was not to be had within the wait"},
	{ExitIndeterminate, "indeterminate: the request may or may not have taken effect"},
	{ExitRefused, "refused: the request was not allowed"},
	{ExitConfig, "bad configuration"},
	{ExitCannotRun, "lock: the command is not executable"},
	{ExitNotFound, "lock: the command was not found"},
}

func helpExitCodes() *cobra.Command {
	var b strings.Builder
	b.WriteString("Exit codes:\n\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %s\n", c.code, strings.ReplaceAll(c.meaning, "\n", "\n       "))
	}
	b.WriteString(`
"holdfast lock" otherwise ends with the exit code of its command: 128+n when
signal n ended it. It ends with 128+n itself when signal n came before the
command was started; the command is then never started.
`)
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: b.String()}
}

// exitError is an error with its exit code. An empty text prints nothing.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &exitError{ExitUsage, fmt.Sprintf(format, args...)}
}

func configf(format string, args ...any) error {
	return &exitError{ExitConfig, fmt.Sprintf(format, args...)}
}

func failf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Sprintf(format, args...)}
}

// explain gives the exit code and the message for an error of any command.
func explain(err error) (int, string) {
	var exit *exitError
	var setting *settings.Error
	switch {
	case errors.As(err, &exit):
		return exit.code, exit.text
	case errors.As(err, &setting):
		return ExitConfig, err.Error()
	}
	for _, known := range clientErrors {
		if errors.Is(err, known.err) {
			return known.code, oneLine(err)
		}
	}
	// What is left comes from the command-line parser.
	return ExitUsage, err.Error()
}

// oneLine writes an error, which may be several joined, in one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
