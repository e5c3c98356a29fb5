package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/client"
)

// TestReadmeShowsTheseExamples: the README's Go code is the code of this file,
// so it compiles, and the resource that checks tokens does what is said of it.
func TestReadmeShowsTheseExamples(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	flat := func(s string) string {
		lines := strings.Split(s, "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		return strings.Join(lines, "\n")
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) != 2 {
		t.Errorf("%d blocks of Go in the README, want 2", len(blocks))
	}
	for _, b := range blocks {
		code, _, _ := strings.Cut(b, "```")
		if !strings.Contains(flat(string(source)), flat(code)) {
			t.Errorf("this code of the README is not in readme_test.go:\n%s", code)
		}
	}
}

func TestResourceTurnsALateHolderAway(t *testing.T) {
	r := &Resource{store: func([]byte) error { return nil }}
	for _, w := range []struct {
		token uint64
		ok    bool
	}{{5, true}, {5, true}, {9, true}, {5, false}, {8, false}, {9, true}} {
		if err := r.Write(w.token, nil); (err == nil) != w.ok {
			t.Errorf("write with token %d: %v", w.token, err)
		}
	}
}

// Resource is what a lock protects.
type Resource struct {
	mu     sync.Mutex
	newest uint64
	store  func([]byte) error
}

func (r *Resource) Write(token uint64, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.newest {
		return fmt.Errorf("token %d is older than %d: the lock has passed on", token, r.newest)
	}
	r.newest = token
	return r.store(data)
}

func report(context.Context, uint64) error { return nil }

var _ = nightly

func nightly(ctx context.Context) error {
	cl, err := client.Open(ctx, []string{"127.0.0.1:7420", "127.0.0.1:7430", "127.0.0.1:7440"})
	if err != nil {
		return err
	}
	defer cl.Close()

	lock, err := cl.Acquire(ctx, "nightly-report", client.WithWait(30*time.Second), client.WithLease(15*time.Second))
	switch {
	case errors.Is(err, client.ErrTimeout): // somebody else has it
	case errors.Is(err, client.ErrIndeterminate): // it may have been granted to nobody's knowledge: do not go in
	}
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	return report(lock.Context(), lock.Token()) // the context ends when the lock may be lost
}
