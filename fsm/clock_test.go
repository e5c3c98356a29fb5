package fsm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// leader is a node that believes it leads: it stamps with its own base and its
// own monotonic clock, which may lag behind real time but never runs ahead.
type leader struct {
	epoch uint64
	base  time.Duration // of the cluster clock, when it took over
	since time.Duration // real time at which it took over
	lag   time.Duration // time it lost by being frozen
}

func (l *leader) stamp(real time.Duration) time.Duration {
	return l.base + max(real-l.since-l.lag, 0)
}

// regrant is an entry that ends a grant if its time has come, and takes the key.
func (l *leader) regrant(stamp time.Duration, key string, token uint64, lease time.Duration) []byte {
	return encode(&Entry{Epoch: l.epoch, Stamp: stamp, Ops: []Op{
		{Kind: KindExpire, Key: key, Token: token},
		{Kind: KindGrant, Key: key, Lease: lease},
	}})
}

// TestClockNeverRunsFast drives the table through leader changes, deposed
// leaders that go on stamping, delayed entries and frozen nodes, and checks
// that cluster time never passes real time and that no lease ends early.
func TestClockNeverRunsFast(t *testing.T) {
	ended, stale := 0, 0 // the test must see both happen
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		table := NewTable()
		var (
			real      time.Duration
			start     time.Duration // real time of the first takeover
			index     uint64
			leaders   []*leader
			delayed   [][]byte
			grantedAt = map[string]time.Duration{} // real time of the stamp, by key and token
		)
		apply := func(data []byte) Result {
			index++
			res := table.Apply(index, data)
			if limit := real - start; res.Clock > limit {
				t.Fatalf("seed %d: cluster clock %s after %s of real time", seed, res.Clock, limit)
			}
			return res
		}
		for range 400 {
			real += time.Duration(rnd.Int64N(int64(1500 * time.Millisecond)))
			switch {
			case len(leaders) == 0 || rnd.IntN(12) == 0:
				if len(leaders) == 0 {
					start = real
				}
				res := apply(encode(&Entry{Ops: []Op{{Kind: KindTakeover, Takeover: &Takeover{NodeID: "n"}}}}))
				leaders = append(leaders, &leader{epoch: index, base: res.Clock, since: real})
			case rnd.IntN(10) == 0:
				leaders[rnd.IntN(len(leaders))].lag += time.Duration(rnd.Int64N(int64(time.Second)))
			case len(delayed) > 0 && rnd.IntN(4) == 0:
				i := rnd.IntN(len(delayed))
				apply(delayed[i])
				delayed = append(delayed[:i], delayed[i+1:]...)
			default:
				l := leaders[len(leaders)-1]
				if rnd.IntN(3) == 0 {
					l = leaders[rnd.IntN(len(leaders))] // deposed and unaware of it
				}
				key := fmt.Sprintf("k%d", rnd.IntN(4))
				stamp := l.stamp(real)
				g, held := table.Lookup(key)
				data := l.regrant(stamp, key, g.Token, time.Duration(rnd.IntN(5)+1)*time.Second)
				if l != leaders[len(leaders)-1] && rnd.IntN(2) == 0 {
					delayed = append(delayed, data)
					continue
				}
				res := apply(data)
				if res.Stale {
					stale++
					continue
				}
				if held && res.Outcomes[1].Code == Granted {
					ended++
					if age := real - grantedAt[fmt.Sprint(key, g.Token)]; age < g.Lease {
						t.Fatalf("seed %d: a lease of %s ended after %s", seed, g.Lease, age)
					}
				}
				if res.Outcomes[1].Code == Granted {
					grantedAt[fmt.Sprint(key, res.Outcomes[1].Token)] = real
				}
			}
		}
	}
	if ended < 1000 || stale < 1000 {
		t.Errorf("only %d leases ended and %d entries were stale: the test shows little", ended, stale)
	}
}

// TestEntryOfAnOldEpochIsNotExecuted shows what the epoch is for: a leader
// that stamped, lost and regained leadership must not have that entry counted.
func TestEntryOfAnOldEpochIsNotExecuted(t *testing.T) {
	table := NewTable()
	takeover := encode(&Entry{Ops: []Op{{Kind: KindTakeover, Takeover: &Takeover{NodeID: "n1"}}}})
	table.Apply(1, takeover)
	table.Apply(2, encode(&Entry{Epoch: 1, Stamp: time.Second, Ops: []Op{{Kind: KindGrant, Key: "k", Lease: 5 * time.Second}}}))
	table.Apply(3, takeover)
	before := table.Hash()
	res := table.Apply(4, encode(&Entry{Epoch: 1, Stamp: time.Hour, Ops: []Op{{Kind: KindExpire, Key: "k", Token: 1}}}))
	if !res.Stale || res.Outcomes != nil || res.Clock != time.Second {
		t.Fatalf("%+v", res)
	}
	if table.Hash() == before {
		t.Error("the applied index is not part of the hash") // a stale entry moves it
	}
	if g, ok := table.Lookup("k"); !ok || g.Deadline != 6*time.Second || table.Clock() != time.Second {
		t.Errorf("grant %+v at %s", g, table.Clock())
	}
}

// TestTokensRiseAcrossRebuiltClusters: a new table whose leader's floor is the
// wall clock grants above every token of the table it replaces.
func TestTokensRiseAcrossRebuiltClusters(t *testing.T) {
	last := uint64(0)
	for day := range 10 {
		table := NewTable()
		floor := uint64(90e6+day*86400) << 22
		table.Apply(1, encode(&Entry{Ops: []Op{{Kind: KindTakeover, Takeover: &Takeover{TokenFloor: floor}}}}))
		for i := range 100 {
			key := fmt.Sprintf("k%d", i)
			res := table.Apply(uint64(i+2), encode(&Entry{Epoch: 1, Ops: []Op{{Kind: KindGrant, Key: key, Lease: time.Second}}}))
			if tok := res.Outcomes[0].Token; tok <= last || tok >= 1<<53 {
				t.Fatalf("token %d after %d", tok, last)
			} else {
				last = tok
			}
		}
		// A lower floor never lowers the counter, an absurd one is ignored.
		for i, f := range []uint64{0, 5, 1 << 60, ^uint64(0)} {
			table.Apply(uint64(200+i), encode(&Entry{Ops: []Op{{Kind: KindTakeover, Takeover: &Takeover{TokenFloor: f}}}}))
			if table.LastToken() != last {
				t.Fatalf("floor %d moved the counter from %d to %d", f, last, table.LastToken())
			}
		}
	}
}
