package clustertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cluster/admin"
)

// Node is one holdfast process with its disk, through all its restarts.
type Node struct {
	ID                  string
	Client, Peer, Admin string   // addresses
	Dir                 string   // its data
	Flags               []string // put behind all others at the next start

	t       testing.TB
	c       *Cluster
	log     *Log // of all its lives
	proc    *Process
	running bool
	paused  bool
}

// steady are timings twice as slow as the defaults: several clusters, built with
// the race detector, share a machine with whatever else runs there, and an
// election that no test asked for would disturb it.
var steady = []string{"--heartbeat-timeout", "500ms", "--election-timeout", "500ms", "--leader-lease-timeout", "500ms"}

// errPortTaken: somebody else listens on a port of this node.
var errPortTaken = errors.New("a port is taken")

func (n *Node) args() []string {
	args := []string{
		"serve", "--node-id", n.ID, "--data-dir", n.Dir, "--cluster-name", n.c.Name,
		"--client-addr", n.Client, "--peer-addr", n.Peer, "--admin-addr", n.Admin, "--peers", n.c.peers(),
	}
	args = append(args, steady...)
	return append(append(args, n.c.Flags...), n.Flags...)
}

// Start starts the node with the data it has, and returns when it serves: that it
// leads, or knows who does, comes later.
func (n *Node) Start() {
	n.t.Helper()
	err := poll(5*time.Second, func() error {
		err := n.start()
		if err != nil && !errors.Is(err, errPortTaken) {
			n.t.Fatal(err)
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// TryStart starts the node and returns its process without waiting for anything:
// for nodes that are expected to refuse.
func (n *Node) TryStart() *Process {
	n.t.Helper()
	return StartProcess(n.t, nil, Binary(n.t), n.args()...)
}

func (n *Node) start() error {
	n.t.Helper()
	if n.running {
		n.t.Fatalf("%s runs already", n.ID)
	}
	proc := StartProcess(n.t, nil, Binary(n.t), n.args()...)
	err := poll(Patience, func() error {
		if proc.Ended() || proc.Err.Has("msg=serving") {
			return nil
		}
		return fmt.Errorf("%s does not serve yet:\n%s", n.ID, proc.Err)
	})
	if err != nil {
		return err
	}
	if proc.Ended() {
		_, _ = io.WriteString(n.log, proc.Err.String())
		err := fmt.Errorf("%s ended with code %d instead of serving:\n%s", n.ID, proc.code(), proc.Err)
		if proc.Err.Has("address already in use") {
			err = fmt.Errorf("%w: %w", errPortTaken, err)
		}
		return err
	}
	n.proc, n.running, n.paused = proc, true, false
	return nil
}

// ended takes the node's process for gone.
func (n *Node) ended() {
	n.running, n.paused = false, false
	_, _ = io.WriteString(n.log, n.proc.Err.String())
	checkClean(n.t, n.ID, n.proc.Err)
}

// Kill ends the node as kill -9 does.
func (n *Node) Kill() {
	n.t.Helper()
	if !n.running {
		n.t.Fatalf("%s does not run", n.ID)
	}
	n.proc.Kill()
	n.ended()
}

// Stop ends the node with SIGTERM. It must end in good order.
func (n *Node) Stop() {
	n.t.Helper()
	n.proc.Signal(syscall.SIGTERM)
	if code := n.WaitExit(); code != 0 {
		n.t.Errorf("%s stopped with code %d", n.ID, code)
	}
}

// WaitExit waits until the node has ended by itself and returns its exit code.
func (n *Node) WaitExit() int {
	n.t.Helper()
	code := n.proc.Wait(Patience)
	n.ended()
	return code
}

// Pause freezes the node with SIGSTOP; Continue thaws it.
func (n *Node) Pause() { n.proc.Signal(syscall.SIGSTOP); n.paused = true }

// Continue lets a paused node go on.
func (n *Node) Continue() { n.proc.Signal(syscall.SIGCONT); n.paused = false }

// WipeDisk removes all the node's data. It must not run.
func (n *Node) WipeDisk() {
	n.t.Helper()
	if n.running {
		n.t.Fatalf("%s still runs", n.ID)
	}
	entries, err := os.ReadDir(n.Dir)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(n.Dir, e.Name())); err != nil {
			n.t.Fatal(err)
		}
	}
}

// Running tells whether the node's process is there and not paused.
func (n *Node) Running() bool { return n.running && !n.paused }

// Log is all that the node has written, in all its lives.
func (n *Node) Log() string {
	if !n.running {
		return n.log.String()
	}
	return n.log.String() + n.proc.Err.String()
}

var httpClient = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Get fetches a path of the node's HTTP side.
func (n *Node) Get(path string) (code int, body string, err error) {
	resp, err := httpClient.Get("http://" + n.Admin + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

// Status asks the node how it is.
func (n *Node) Status() (s admin.Status, err error) {
	code, body, err := n.Get("/v1/status")
	if err != nil {
		return s, err
	}
	if code != http.StatusOK {
		return s, fmt.Errorf("status of %s: %d %s", n.ID, code, body)
	}
	return s, json.Unmarshal([]byte(body), &s)
}

// Locks lists the locks the node has applied, with a query like "?limit=10".
func (n *Node) Locks(query string) (l admin.LockList) {
	n.t.Helper()
	code, body, err := n.Get("/v1/locks" + query)
	if err != nil || code != http.StatusOK {
		n.t.Fatalf("locks of %s: %d %s %v", n.ID, code, body, err)
	}
	if err := json.Unmarshal([]byte(body), &l); err != nil {
		n.t.Fatal(err)
	}
	return l
}

// Dial opens a session with the node.
func (n *Node) Dial() *Conn {
	n.t.Helper()
	return Dial(n.t, n.Client)
}

// Voters are the node ids of the voting members, as this node knows them, sorted.
func voters(s admin.Status) string {
	var ids []string
	for _, m := range s.Members {
		if m.Voter {
			ids = append(ids, m.Node)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}
