// Package deploy holds what a machine needs to run a node, and tests that it is
// valid.
package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program builds the binary whose files these are.
func program(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.Command("go", "build", "-tags", "hashicorpmetrics", "-o", bin, "../cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

func TestConfigurationIsGood(t *testing.T) {
	out, err := exec.Command(program(t), "serve", "--config", "systemd/holdfast.yaml", "--check-config").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestUnitFitsTheProgram(t *testing.T) {
	unit, err := os.ReadFile("systemd/holdfast.service")
	if err != nil {
		t.Fatal(err)
	}
	bin := program(t)
	start := ""
	for line := range strings.Lines(string(unit)) {
		if cmd, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			start = cmd
		}
	}
	args := strings.Fields(start)
	if len(args) < 2 || args[0] != "/usr/local/bin/holdfast" {
		t.Fatalf("ExecStart is %q", start)
	}
	help, err := exec.Command(bin, args[1], "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	for _, a := range args[2:] {
		if strings.HasPrefix(a, "--") && !strings.Contains(string(help), a+" ") {
			t.Errorf("the program has no flag %s", a)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed: the unit's own syntax is not verified")
		return
	}
	// It wants the program of ExecStart to exist: verify a copy that names ours.
	copied := filepath.Join(t.TempDir(), "holdfast.service")
	text := strings.ReplaceAll(string(unit), "/usr/local/bin/holdfast", bin)
	if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", copied).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
