package fsm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestStories runs the scripts in testdata/stories: each is a history of a
// table with the outcomes it must have.
//
//	takeover [node=n] [floor=n] [id=n]  a leader takes over; its index is the epoch
//	apply [epoch=n] stamp=d             one entry; the input has one operation a line:
//	                                    tick | grant K LEASE | release K TOKEN | keep K TOKEN LEASE | expire K TOKEN
//	state                               the table
//	leader                              who leads which cluster
//	restart                             the table is persisted and a new one restored from it
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		table, index := NewTable(), uint64(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "takeover":
				index++
				node, floor, id := "n1", uint64(0), 0
				d.MaybeScanArgs(t, "id", &id)
				d.MaybeScanArgs(t, "node", &node)
				d.MaybeScanArgs(t, "floor", &floor)
				res := table.Apply(index, encode(&Entry{Ops: []Op{{Kind: KindTakeover, Takeover: &Takeover{NodeID: node, TokenFloor: floor, ClusterID: [16]byte{byte(id)}}}}}))
				return fmt.Sprintf("epoch %d, clock %s\n", index, res.Clock)
			case "apply":
				index++
				return applyStory(t, d, table, index)
			case "state":
				return tableStory(table)
			case "leader":
				return fmt.Sprintf("%s leads cluster %d\n", table.Leader().NodeID, table.ClusterID()[0])
			case "restart":
				table = throughSnapshot(t, table)
				return tableStory(table)
			}
			t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			return ""
		})
	})
}

func applyStory(t *testing.T, d *datadriven.TestData, table *Table, index uint64) string {
	t.Helper()
	e := Entry{Epoch: table.Epoch()}
	d.MaybeScanArgs(t, "epoch", &e.Epoch)
	var stamp string
	d.ScanArgs(t, "stamp", &stamp)
	e.Stamp = duration(t, stamp)
	lines := strings.Split(strings.TrimSpace(d.Input), "\n")
	for _, line := range lines {
		var kind, key, lease string
		var token uint64
		f := strings.Fields(line)
		kind = f[0]
		if len(f) > 1 {
			key = f[1]
		}
		op := Op{Key: key}
		switch kind {
		case "tick":
			op = Op{Kind: KindTick}
		case "grant":
			op.Kind, lease = KindGrant, f[2]
		case "release", "expire", "keep":
			op.Kind = map[string]Kind{"release": KindRelease, "expire": KindExpire, "keep": KindKeep}[kind]
			fmt.Sscan(f[2], &token)
			if kind == "keep" {
				lease = f[3]
			}
		default:
			t.Fatalf("%s: unknown operation %q", d.Pos, line)
		}
		op.Token = token
		if lease != "" {
			op.Lease = duration(t, lease)
		}
		e.Ops = append(e.Ops, op)
	}
	res := table.Apply(index, encode(&e))
	if res.Stale {
		return fmt.Sprintf("stale, clock %s\n", res.Clock)
	}
	var out strings.Builder
	names := map[OutcomeCode]string{Granted: "granted", Held: "held", Released: "released", NotHeld: "not held", Kept: "kept", Expired: "expired", NotExpired: "not expired", Ticked: "ticked"}
	for i, o := range res.Outcomes {
		fmt.Fprintf(&out, "%s: %s", lines[i], names[o.Code])
		if o.Token != 0 {
			fmt.Fprintf(&out, " token %d until %s", o.Token, o.Deadline)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func tableStory(table *Table) string {
	var out strings.Builder
	fmt.Fprintf(&out, "clock %s, epoch %d, last token %d, %d grants\n", table.Clock(), table.Epoch(), table.LastToken(), table.Len())
	for _, d := range table.Due(1<<62, 100, nil) {
		g, _ := table.Lookup(d.Key)
		fmt.Fprintf(&out, "%s: token %d until %s\n", g.Key, g.Token, g.Deadline)
	}
	return out.String()
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
