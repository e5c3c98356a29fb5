//go:build !race

package client

import "testing"

// The race detector adds allocations of its own.
func TestAllocations(t *testing.T) {
	c, err := Open(t.Context(), []string{quickServer(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := testing.AllocsPerRun(2000, func() {
		l, err := c.Acquire(t.Context(), "some/key")
		if err == nil {
			err = l.Release(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	})
	t.Logf("%.1f objects", n)
	if n >= 10 {
		t.Errorf("acquire and release allocate %.1f objects, want fewer than 10", n)
	}
}
