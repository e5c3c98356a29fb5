package clustertest

import (
	"testing"
	"time"
)

// Patience is how long tests wait for what must come soon. It is far more than a
// healthy cluster needs: it bounds a test that fails, on a loaded machine.
const Patience = 30 * time.Second

// Eventually polls until cond returns nil, for at most Patience. cond says what is
// still missing.
func Eventually(t testing.TB, cond func() error) {
	t.Helper()
	Within(t, Patience, cond)
}

// Within is Eventually with its own limit.
func Within(t testing.TB, limit time.Duration, cond func() error) {
	t.Helper()
	if err := poll(limit, cond); err != nil {
		t.Fatalf("not within %v: %v", limit, err)
	}
}

func poll(limit time.Duration, cond func() error) error {
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-end.C:
			return err
		case <-tick.C:
		}
	}
}

// At blocks until the moment given: a test uses it where the passing of time is
// itself what is tested, and never to wait for a state.
func At(moment time.Time) {
	if d := time.Until(moment); d > 0 {
		<-time.After(d)
	}
}
