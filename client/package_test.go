package client

import (
	"os/exec"
	"strings"
	"testing"
)

// The client may be vendored anywhere: it brings nothing but itself.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	const module = "github.com/holdfast-lock/holdfast/"
	for _, dep := range strings.Fields(string(out)) {
		if dep != module+"client" && dep != module+"wire" && !strings.HasPrefix(dep, "golang.org/x/sys/") {
			t.Errorf("the client depends on %s", dep)
		}
	}
}

func TestOwnersAreUnique(t *testing.T) {
	seen := make(map[uint64]bool)
	for range 100_000 {
		o := newOwner()
		if o == 0 || seen[o] {
			t.Fatalf("owner %d again", o)
		}
		seen[o] = true
	}
}

func TestClockGoesOn(t *testing.T) {
	a := systemClock()
	if b := systemClock(); b < a || a <= 0 {
		t.Errorf("%v, then %v", a, b)
	}
}
