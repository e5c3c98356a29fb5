package settings

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// sample is a table with a setting of every kind.
type sample struct {
	file  string
	name  string
	count int
	big   uint64
	wait  time.Duration
	on    bool
	level string
	peers []string
}

func (s *sample) table() *Table {
	*s = sample{name: "none", count: 3, big: 4, wait: 2 * time.Minute, level: "info", peers: []string{"a", "b"}}
	t := New()
	t.String(&s.file, "config", "file", "File").NoFile = true
	t.Group("Things")
	t.String(&s.name, "node-id", "name", "Name")
	t.Int(&s.count, "max-things", "Things at once")
	t.Uint64(&s.big, "threshold", "Threshold")
	t.Duration(&s.wait, "wait-time", "Time to wait")
	t.Bool(&s.on, "on", "Switch")
	t.Choice(&s.level, "level", "Level", "info", "warn")
	t.List(&s.peers, "peers", "id=host:port,...", "Peers")
	return t
}

// load parses args and brings in the environment and, if not empty, a file.
func (s *sample) load(t *testing.T, args, environ []string, file string) error {
	t.Helper()
	table := s.table()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	table.Bind(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	src := Sources{Environ: environ, Known: []string{"HOLDFAST_TOKEN"}}
	if file != "" {
		src.File = filepath.Join(t.TempDir(), "holdfast.yaml")
		if err := os.WriteFile(src.File, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return table.Load(src)
}

func TestPrecedence(t *testing.T) {
	flag, env, file := []string{"--node-id=flag"}, []string{"HOLDFAST_NODE_ID=env"}, "node-id: file"
	for _, c := range []struct {
		args, environ []string
		file, want    string
	}{
		{nil, nil, "", "none"},
		{nil, nil, file, "file"},
		{nil, env, "", "env"},
		{nil, env, file, "env"},
		{flag, nil, "", "flag"},
		{flag, nil, file, "flag"},
		{flag, env, "", "flag"},
		{flag, env, file, "flag"},
		{nil, []string{"HOLDFAST_NODE_ID="}, file, "file"}, // set to nothing is not set
		{[]string{"--node-id="}, env, file, ""},            // said to be nothing is nothing
	} {
		var s sample
		if err := s.load(t, c.args, c.environ, c.file); err != nil {
			t.Fatal(err)
		}
		if s.name != c.want {
			t.Errorf("flags %v, environment %v, file %q: got %q, want %q", c.args, c.environ, c.file, s.name, c.want)
		}
	}
}

func TestEveryKindFromEverySource(t *testing.T) {
	check := func(s sample, source string) {
		t.Helper()
		if s.count != 9 || s.big != 10 || s.wait != 1500*time.Millisecond || !s.on || s.level != "warn" || !slices.Equal(s.peers, []string{"n1=h:1", "n2=h:2"}) {
			t.Errorf("%s: %+v", source, s)
		}
	}
	var s sample
	if err := s.load(t, []string{"--max-things=9", "--threshold=10", "--wait-time=1.5s", "--on", "--level=warn", "--peers=n1=h:1, n2=h:2"}, nil, ""); err != nil {
		t.Fatal(err)
	}
	check(s, "flags")
	if err := s.load(t, nil, []string{"HOLDFAST_MAX_THINGS=9", "HOLDFAST_THRESHOLD=10", "HOLDFAST_WAIT_TIME=1.5s", "HOLDFAST_ON=true", "HOLDFAST_LEVEL=warn", "HOLDFAST_PEERS=n1=h:1,n2=h:2"}, ""); err != nil {
		t.Fatal(err)
	}
	check(s, "environment")
	const rest = "max-things: 9\nthreshold: 10\nwait-time: 1.5s\non: true\nlevel: warn\n"
	for _, peers := range []string{"peers: n1=h:1,n2=h:2", "peers: [n1=h:1, n2=h:2]", "peers:\n  n1: h:1\n  n2: h:2\n"} {
		if err := s.load(t, nil, nil, rest+peers); err != nil {
			t.Fatal(err)
		}
		check(s, peers)
	}
}

func TestEmptyFile(t *testing.T) {
	for _, file := range []string{"# nothing\n", "---\n", "~\n", "node-id:\n"} {
		var s sample
		if err := s.load(t, nil, nil, file); err != nil || s.name != "none" {
			t.Errorf("%q: %v, %+v", file, err, s)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, c := range []struct {
		name          string
		args, environ []string
		file          string
		want          []string
	}{
		{"unknown key", nil, nil, "node-id: a\nnode-idd: b\n", []string{"node-idd", "line 2", "did you mean node-id?"}},
		{"unknown variable", nil, []string{"HOLDFAST_NODEID=x"}, "", []string{"HOLDFAST_NODEID", "HOLDFAST_NODE_ID?"}},
		{"made-up port", nil, []string{"HOLDFAST_CLIENT_PORT=7420"}, "", []string{"HOLDFAST_CLIENT_PORT"}},
		{"the file in the file", nil, nil, "config: x\n", []string{"config"}},
		{"bad duration flag", []string{"--wait-time=5"}, nil, "", []string{"--wait-time", `"5" is not a duration`, "10s"}},
		{"negative duration", []string{"--wait-time=-5s"}, nil, "", []string{"--wait-time", "negative"}},
		{"bad number in environment", nil, []string{"HOLDFAST_MAX_THINGS=many"}, "", []string{"HOLDFAST_MAX_THINGS", "many"}},
		{"negative number", nil, []string{"HOLDFAST_THRESHOLD=-1"}, "", []string{"HOLDFAST_THRESHOLD", "-1"}},
		{"bad switch in file", nil, nil, "on: maybe\n", []string{"on in ", "line 1", "maybe", "true or false"}},
		{"bad choice", []string{"--level=loud"}, nil, "", []string{"--level", "loud", "info, warn"}},
		{"bad value below a good flag", []string{"--max-things=1"}, nil, "max-things: many\n", []string{"max-things", "many"}},
		{"key twice", nil, nil, "on: true\non: false\n", []string{"on", "twice"}},
		{"a list where a value belongs", nil, nil, "node-id: [a, b]\n", []string{"node-id", "single value"}},
		{"lists in a list", nil, nil, "peers: [[a]]\n", []string{"peers"}},
		{"not a mapping", nil, nil, "- a\n", []string{"--config"}},
		{"not YAML", nil, nil, "a: b: c\n", []string{"--config", "YAML"}},
		{"two documents", nil, nil, "on: true\n---\non: false\n", []string{"--config", "more than one"}},
		{"too large", nil, nil, strings.Repeat("# padding\n", maxFileBytes/10+1), []string{"--config", "larger"}},
	} {
		var s sample
		err := s.load(t, c.args, c.environ, c.file)
		var bad *Error
		if !errors.As(err, &bad) {
			t.Errorf("%s: %v is not an *Error", c.name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", c.name, err, want)
			}
		}
	}
}

func TestMissingFile(t *testing.T) {
	var s sample
	err := s.table().Load(Sources{File: "/no/such/file.yaml"})
	if err == nil || !strings.Contains(err.Error(), "/no/such/file.yaml") {
		t.Error(err)
	}
}

func TestToleratedVariables(t *testing.T) {
	var s sample
	environ := []string{
		"HOLDFAST_TOKEN=1", // known to others
		"PATH=/bin", "OTHER=x",
		"HOLDFAST_SERVICE_HOST=10.0.0.1", "HOLDFAST_SERVICE_PORT=7420", "HOLDFAST_SERVICE_PORT_CLIENT=7420",
		"HOLDFAST_PORT=tcp://10.0.0.1:7420", "HOLDFAST_PORT_7420_TCP=tcp://10.0.0.1:7420", "HOLDFAST_PORT_7420_TCP_PROTO=tcp",
		"HOLDFAST_PORT_7420_TCP_PORT=7420", "HOLDFAST_PORT_7420_TCP_ADDR=10.0.0.1", "HOLDFAST_PEER_SERVICE_HOST=10.0.0.2",
	}
	if err := s.load(t, nil, environ, ""); err != nil {
		t.Error(err)
	}
}

func TestLocalTableKnowsNoVariables(t *testing.T) {
	lease := 15 * time.Second
	table := NewLocal()
	table.Duration(&lease, "lease", "Lease")
	if err := table.Load(Sources{Environ: []string{"HOLDFAST_LEASE=99s"}, Known: []string{"HOLDFAST_LEASE"}}); err != nil || lease != 15*time.Second {
		t.Error(lease, err)
	}
}

func TestMarkdown(t *testing.T) {
	var s sample
	var b strings.Builder
	s.table().Markdown(&b)
	for _, want := range []string{
		"Things:\n", "| `--node-id` | `HOLDFAST_NODE_ID` | name | `none` | Name |\n",
		"| `--wait-time` | `HOLDFAST_WAIT_TIME` | duration | `2m` | Time to wait |\n", `info\|warn`, "`a,b`",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 2 * time.Minute: "2m", time.Hour: "1h", 90 * time.Second: "1m30s", 250 * time.Millisecond: "250ms", 10 * time.Minute: "10m", 20 * time.Hour: "20h"} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}
