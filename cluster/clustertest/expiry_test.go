package clustertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// TestExpiry lets many leases run out at once, each with somebody who waits for the
// key: the moment at which the waiter is granted is the moment the lease ended.
// None may end early; how late they are depends on the machine, and is logged.
func TestExpiry(t *testing.T) {
	t.Parallel()
	const keys = 300
	const kept = 3 // every third is renewed once, halfway
	node := Start(t, 1).Nodes[0]
	holder, waiter := node.Dial(), node.Dial()
	key := func(i int) []byte { return []byte(fmt.Sprint("key", i)) }
	lease := func(i int) uint8 { return uint8(1 + i%2) }

	var acquires, waits, keeps []wire.Request
	for i := range keys {
		owner := uint64(i)
		acquires = append(acquires, wire.Request{Op: wire.OpAcquire, Lease: lease(i), Owner: owner, Text: key(i)})
		waits = append(waits, wire.Request{Op: wire.OpAcquire, Wait: 60, Lease: 60, Owner: owner, Text: key(i)})
	}
	tokens := make([]uint64, keys)
	from := make([]time.Time, keys) // no lease begins before it
	sent := time.Now()
	holder.Send(acquires...)
	for range keys {
		r := holder.Next()
		if r.Op != wire.OpAcquired {
			t.Fatalf("got %v", r)
		}
		tokens[r.Owner], from[r.Owner] = r.Token, sent
	}
	waiter.Send(waits...)
	At(sent.Add(500 * time.Millisecond))
	renewed := time.Now()
	for i := 0; i < keys; i += kept {
		keeps = append(keeps, wire.Request{Op: wire.OpKeep, Lease: lease(i), Owner: uint64(i), Token: tokens[i], Text: key(i)})
	}
	holder.Send(keeps...)
	for range keeps {
		if r := holder.Next(); r.Op == wire.OpKept {
			from[r.Owner] = renewed
		} else if time.Since(sent) < time.Second {
			t.Fatalf("a keep within the lease got %v", r)
		}
	}
	var latest time.Duration
	for range keys {
		r := waiter.Await(Patience)
		late := time.Since(from[r.Owner]) - time.Duration(lease(int(r.Owner)))*time.Second
		switch {
		case r.Op != wire.OpAcquired || r.Token <= tokens[r.Owner]:
			t.Fatalf("got %v with token %d after %d", r, r.Token, tokens[r.Owner])
		case late < 0:
			t.Fatalf("a lease of %d s ended %v early", lease(int(r.Owner)), -late)
		}
		latest = max(latest, late)
	}
	t.Logf("%d leases ended at most %v late", keys, latest)
	if latest > 5*time.Second {
		t.Errorf("a lease ended %v late", latest)
	}
}
