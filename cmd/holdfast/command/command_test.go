package command

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets this binary be the program itself, for scripts and for the
// processes that the program starts of itself.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"holdfast": func() { os.Exit(Main()) }})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Setup:              func(env *testscript.Env) error { noRaceDelay(env); return nil },
		Cmds:               map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// noRaceDelay spares each program built with the race detector its second of
// sleep at exit.
func noRaceDelay(env *testscript.Env) { env.Setenv("GORACE", "atexit_sleep_ms=0") }

// exits runs a command and checks its exit code: exits 64 holdfast lock.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

func TestReadmeHasTheFlags(t *testing.T) {
	const path = "../../../README.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(nil, Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	want, err := replaceTables(text, a.flagTables())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if string(want) != string(text) {
		t.Errorf("the flags' tables in %s are not those of the code: run make docs", path)
	}
}

func TestReadmeHasTheExitCodes(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range exitCodes {
		if row := "| " + strconv.Itoa(c.code) + " | "; c.code < ExitCannotRun && !strings.Contains(string(text), row) {
			t.Errorf("README.md has no row %q", row)
		}
	}
}

// TestEveryServeSettingIsDescribed keeps the table fit for print.
func TestEveryServeSettingIsDescribed(t *testing.T) {
	a := newApp(nil, Streams{})
	for _, ct := range a.tables {
		for _, s := range ct.table.Rows() {
			switch {
			case s.Usage == "" || s.Kind == "":
				t.Errorf("%s --%s: no usage or no kind of value", ct.cmd.Name(), s.Name)
			case strings.HasSuffix(s.Usage, ".") || strings.ToUpper(s.Usage[:1]) != s.Usage[:1]:
				t.Errorf("%s --%s: %q: begin with a capital, end without a full stop", ct.cmd.Name(), s.Name, s.Usage)
			}
		}
	}
}
