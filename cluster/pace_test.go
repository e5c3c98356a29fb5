package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestHeartbeatsAreSpaced(t *testing.T) {
	p := newPacedTransport(nil, 250*time.Millisecond)
	now := time.Now()
	if d := p.wait("a", now); d != 0 {
		t.Errorf("the first heartbeat waits %s", d)
	}
	if d := p.wait("b", now); d != 0 {
		t.Errorf("another peer's heartbeat waits %s", d)
	}
	now = now.Add(30 * time.Millisecond)
	if d := p.wait("a", now); d != 45*time.Millisecond {
		t.Errorf("a heartbeat 30 ms after the first waits %s, want 45 ms", d)
	}
	now = now.Add(time.Minute)
	if d := p.wait("a", now); d != 0 {
		t.Errorf("a heartbeat after a long pause waits %s", d)
	}
}

func TestOnlyHeartbeatsAreSpaced(t *testing.T) {
	for _, c := range []struct {
		req  raft.AppendEntriesRequest
		want bool
	}{
		{raft.AppendEntriesRequest{Term: 3}, true},
		{raft.AppendEntriesRequest{Term: 3, RPCHeader: raft.RPCHeader{Addr: []byte("x")}}, true},
		{raft.AppendEntriesRequest{Term: 3, LeaderCommitIndex: 1}, false},
		{raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 1, PrevLogTerm: 1}, false},
		{raft.AppendEntriesRequest{Term: 3, Entries: []*raft.Log{{}}}, false},
	} {
		if got := isHeartbeat(&c.req); got != c.want {
			t.Errorf("%+v: %v", c.req, got)
		}
	}
}
