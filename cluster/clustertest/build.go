// Package clustertest runs real holdfast processes for tests: their own disks,
// their own sockets, killed and paused like any process. DESIGN.md explains it.
package clustertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var build struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// Main runs a package's tests and removes what Binary has built. Call it from
// TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	if build.dir != "" {
		_ = os.RemoveAll(build.dir)
	}
	return code
}

// Binary returns the path of the holdfast program, built from the working tree
// once per test process, with the race detector if the test has it.
func Binary(t testing.TB) string {
	t.Helper()
	build.once.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "holdfast-binary-"); build.err != nil {
			return
		}
		build.path = filepath.Join(build.dir, "holdfast")
		args := []string{"build", "-tags", "hashicorpmetrics", "-o", build.path}
		if raceDetector {
			args = append(args, "-race")
		}
		out, err := exec.Command("go", append(args, "github.com/holdfast-lock/holdfast/cmd/holdfast")...).CombinedOutput()
		if err != nil {
			build.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.path
}
