package client

import (
	crand "crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// Owners correlate replies, and a later query recognises its own grant by
// them, so they must not repeat in this process and should not in any other.
var owners struct {
	seed  sync.Once
	key   uint64
	count atomic.Uint64
}

// newOwner returns a number never returned before in this process and never 0.
// A counter goes through a keyed bijection: distinct counts give distinct owners,
// and two processes with different keys do not run through the same range.
func newOwner() uint64 {
	owners.seed.Do(func() {
		var b [16]byte
		_, _ = crand.Read(b[:]) // never fails: it ends the process instead
		owners.key = binary.BigEndian.Uint64(b[:8])
		owners.count.Store(binary.BigEndian.Uint64(b[8:]))
	})
	for {
		if o := mix(owners.count.Add(1) ^ owners.key); o != 0 {
			return o
		}
	}
}

// mix is the finaliser of SplitMix64: each step is invertible, so it never maps
// two numbers to one.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
