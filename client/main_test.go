package client

import (
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// No test, and so no Close, may leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A program that embeds the client must not inherit the servers' dependencies.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, p := range strings.Fields(string(out)) {
		const ours = "github.com/holdfast-lock/holdfast/"
		if p != ours+"client" && p != ours+"wire" && !strings.HasPrefix(p, "golang.org/x/sys/") {
			t.Errorf("client depends on %s", p)
		}
	}
}
