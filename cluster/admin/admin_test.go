package admin

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/cluster"
	"github.com/holdfast-lock/holdfast/cluster/frontend"
	"github.com/holdfast-lock/holdfast/fsm"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fakeNode struct {
	status      cluster.Status
	ready, live error
}

func (n *fakeNode) Status() cluster.Status { return n.status }
func (n *fakeNode) Ready() error           { return n.ready }
func (n *fakeNode) Liveness() error        { return n.live }

type fakeClients struct {
	stats   frontend.Stats
	alive   error
	waiters map[string]int
	asked   []string
}

func (c *fakeClients) Stats() frontend.Stats     { return c.stats }
func (c *fakeClients) Alive(time.Duration) error { return c.alive }
func (c *fakeClients) Waiters(keys []string) []int {
	c.asked = keys
	counts := make([]int, len(keys))
	for i, k := range keys {
		counts[i] = c.waiters[k]
	}
	return counts
}

// site is a whole HTTP side over fakes and a real lock table.
type site struct {
	t       *testing.T
	node    *fakeNode
	clients *fakeClients
	table   *fsm.Table
	reg     *prometheus.Registry
	srv     *http.Server
	index   uint64
}

func newSite(t *testing.T) *site {
	s := &site{
		t: t, table: fsm.NewTable(), reg: prometheus.NewRegistry(),
		node: &fakeNode{status: cluster.Status{
			NodeID: "n1", Incarnation: "00000000000000a1", ClusterName: "prod", ClusterID: "0011",
			Role: cluster.RoleLeader, Term: 3, LeaderID: "n1", LeaderClientAddr: "10.0.0.1:7420", LeaderAdminAddr: "10.0.0.1:7422",
			AppliedIndex: 41, CommitIndex: 42, LastIndex: 43, Epoch: 7, Clock: 90500 * time.Millisecond,
			Members: []cluster.Member{
				{NodeID: "n1", Incarnation: "00000000000000a1", PeerAddr: "10.0.0.1:7421", Voter: true},
				{NodeID: "n2", Incarnation: "00000000000000b2", PeerAddr: "10.0.0.2:7421"},
			},
		}},
		clients: &fakeClients{stats: frontend.Stats{
			Sessions: 5, Waiters: 4, Queue: 3, SessionsAccepted: 20, SessionsTurnedAway: 2, Acquires: 100,
			Granted: 61, Timeouts: 12, Busy: 13, Moved: 14, Refused: 15, Released: 16, Kept: 17, NotHeld: 18, Expired: 19,
			Orphans: 1, Unknown: 6, Entries: 70, EntryOps: 140, WaitedMS: 2500,
		}},
	}
	srv, err := New(Config{Node: s.node, Clients: s.clients, Locks: s.table, Registry: s.reg, Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	s.srv = srv
	s.apply(0, fsm.Op{Kind: fsm.KindTakeover, Takeover: &fsm.Takeover{NodeID: "n1", TokenFloor: 1 << 52}})
	return s
}

func (s *site) apply(stamp time.Duration, ops ...fsm.Op) {
	s.t.Helper()
	e := fsm.Entry{Epoch: 1, Stamp: stamp, Ops: ops}
	if ops[0].Kind == fsm.KindTakeover {
		e.Epoch = 0
	}
	raw, err := fsm.AppendEntry(nil, &e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.index++
	if r := s.table.Apply(s.index, raw); r.Err != nil || r.Stale {
		s.t.Fatalf("entry %d: %+v", s.index, r)
	}
}

func (s *site) grant(stamp time.Duration, key string, lease time.Duration) {
	s.apply(stamp, fsm.Op{Kind: fsm.KindGrant, Key: key, Owner: 1<<63 + 1, Lease: lease, Label: "web/<7>", Addr: "10.1.1.1:4000"})
}

func (s *site) do(method, target string) (int, string, http.Header) {
	s.t.Helper()
	rec := httptest.NewRecorder()
	s.srv.Handler.ServeHTTP(rec, httptest.NewRequest(method, target, nil))
	body, err := io.ReadAll(rec.Result().Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return rec.Code, string(body), rec.Result().Header
}

func (s *site) get(target string, want int) string {
	s.t.Helper()
	code, body, _ := s.do(http.MethodGet, target)
	if code != want {
		s.t.Fatalf("GET %s: %d, want %d\n%s", target, code, want, body)
	}
	return body
}

func (s *site) list(target string) (l LockList) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.get(target, http.StatusOK)), &l); err != nil {
		s.t.Fatal(err)
	}
	return l
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Fatalf("%s differs (go test -update writes it anew); got:\n%s", path, got)
	}
}

func TestStatusGolden(t *testing.T) {
	s := newSite(t)
	s.grant(0, "a", time.Second)
	golden(t, "status_leader.json", s.get("/v1/status", http.StatusOK))

	s = newSite(t)
	s.node.status = cluster.Status{NodeID: "n3", Role: cluster.RoleForming, LastContact: -1, Waiting: "n1, n2"}
	s.node.ready = errors.New("no member of a cluster yet: waiting for n1, n2")
	golden(t, "status_forming.json", s.get("/v1/status", http.StatusOK))
}

func TestLocksGolden(t *testing.T) {
	s := newSite(t)
	s.grant(0, "jobs/b", 10*time.Second)
	s.grant(1500*time.Microsecond, "jobs/a", 2*time.Second)
	s.grant(1500*time.Microsecond, "other", 2*time.Second)
	s.clients.waiters = map[string]int{"jobs/b": 2}
	golden(t, "locks_leader.json", s.get("/v1/locks?prefix=jobs/", http.StatusOK))

	s.node.status.Role = cluster.RoleFollower
	s.node.status.LeaderAdminAddr = "10.0.0.2:7422"
	s.clients.asked = nil
	golden(t, "locks_follower.json", s.get("/v1/locks?prefix=jobs/", http.StatusOK))
	if s.clients.asked != nil {
		t.Fatal("a follower's queues were asked for")
	}
	golden(t, "locks_none.json", s.get("/v1/locks?prefix=nothing", http.StatusOK))
}

func TestLocksPages(t *testing.T) {
	s := newSite(t)
	for i := range 250 {
		s.grant(0, fmt.Sprintf("k%03d", (i*97)%250), 100*time.Second)
	}
	if l := s.list("/v1/locks"); len(l.Locks) != 100 || l.Total != 250 || !l.Truncated {
		t.Fatalf("default page: %d of %d, truncated %v", len(l.Locks), l.Total, l.Truncated)
	}
	after, seen := "", 0
	for {
		l := s.list("/v1/locks?limit=60&after=" + after)
		for _, lock := range l.Locks {
			if want := fmt.Sprintf("k%03d", seen); lock.Key != want {
				t.Fatalf("key %d is %s, want %s", seen, lock.Key, want)
			}
			seen++
			after = lock.Key
		}
		if !l.Truncated {
			break
		}
	}
	if seen != 250 {
		t.Fatalf("pages hold %d locks, want 250", seen)
	}
}

// A lease that is over on the cluster clock is no lock, though its entry that ends
// it is still to come.
func TestLocksLeaveOutWhatIsOver(t *testing.T) {
	s := newSite(t)
	s.grant(0, "over", time.Second)
	s.grant(time.Second, "held", time.Second)
	if l := s.list("/v1/locks"); len(l.Locks) != 1 || l.Locks[0].Key != "held" || l.Total != 1 {
		t.Fatalf("got %+v", l)
	}
}

func TestProbes(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/livez", "/readyz"} {
		if body := s.get(path, http.StatusOK); body != "ok\n" {
			t.Fatalf("%s: %q", path, body)
		}
	}
	// Without a leader a node is alive, only not ready.
	s.node.ready = errors.New("no leader is known")
	s.get("/livez", http.StatusOK)
	if body := s.get("/readyz", http.StatusServiceUnavailable); body != "not ready\n" {
		t.Fatalf("%q", body)
	}
	if body := s.get("/readyz?verbose", http.StatusServiceUnavailable); body != "[-] cluster: no leader is known\n[+] clients: ok\nnot ready\n" {
		t.Fatalf("%q", body)
	}
	s.clients.alive = errors.New("has not answered for 2s")
	if body := s.get("/livez?verbose", http.StatusServiceUnavailable); body != "[+] node: ok\n[-] clients: has not answered for 2s\nnot alive\n" {
		t.Fatalf("%q", body)
	}
	s.clients.alive, s.node.live = nil, errors.New("disk\nfailed")
	if body := s.get("/livez?verbose", http.StatusServiceUnavailable); !strings.HasPrefix(body, "[-] node: disk; failed\n") {
		t.Fatalf("%q", body)
	}
}
