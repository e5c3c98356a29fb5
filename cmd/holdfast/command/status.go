package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cluster"
	"github.com/holdfast-lock/holdfast/cluster/admin"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

// nodeStatus is one node's answer, or why there is none.
type nodeStatus struct {
	Address string `json:"address"` // as it was asked
	Error   string `json:"error,omitempty"`
	*admin.Status
}

// serves tells whether the node leads and serves clients.
func (s nodeStatus) serves() bool {
	return s.Status != nil && s.Role == string(cluster.RoleLeader)
}

func (a *app) newStatus() *cobra.Command {
	admins := devAddrs(devBasePort, 2)
	var timeout = 2 * time.Second
	cmd := &cobra.Command{
		Use:     "status",
		GroupID: "cluster",
		Short:   "Show how each node is",
		Long: `Ask each node's HTTP side how it is, and print one row for each; also for those
that do not answer. The exit code is 69 when no node leads.`,
		Args: exactArgs(),
	}
	shared, local := settings.New(), settings.NewLocal()
	shared.List(&admins, "admin-endpoints", "host:port,...", "Admin addresses of the nodes to ask")
	local.Duration(&timeout, "timeout", "How long to wait for a node's answer")
	a.bind(cmd, shared, local)
	out := a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.load(shared); err != nil {
			return err
		}
		if len(admins) == 0 {
			return configf("--admin-endpoints is empty: name the nodes' admin addresses, for example 127.0.0.1:7422")
		}
		statuses := fetchStatuses(cmd.Context(), admins, timeout)
		if err := a.print(*out, statuses, func() error { return a.statusTable(statuses) }); err != nil {
			return err
		}
		for _, st := range statuses {
			if st.serves() {
				return nil
			}
		}
		return failf(ExitUnavailable, "no node that answered leads")
	}
	return cmd
}

func (a *app) statusTable(statuses []nodeStatus) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ADMIN\tNODE\tROLE\tLEADER\tTERM\tAPPLIED\tGRANTS\tWAITERS\tSESSIONS")
	for _, st := range statuses {
		if st.Status == nil {
			fmt.Fprintf(w, "%s\t-\tunreachable\t-\t-\t-\t-\t-\t-\n", st.Address)
			continue
		}
		leader := st.Leader.Node
		if leader == "" {
			leader = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", st.Address, st.Node, st.Role, leader,
			st.Term, st.AppliedIndex, st.Grants, st.Waiters, st.Sessions)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, st := range statuses {
		if st.Error != "" {
			fmt.Fprintf(a.Err, "holdfast: %s: %s\n", st.Address, st.Error)
		}
	}
	return nil
}

// fetchStatuses asks all nodes at once; the order is that of the addresses.
func fetchStatuses(ctx context.Context, admins []string, timeout time.Duration) []nodeStatus {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	statuses := make([]nodeStatus, len(admins))
	var wg sync.WaitGroup
	for i, addr := range admins {
		wg.Go(func() {
			st := new(admin.Status)
			if err := getJSON(ctx, addr, "/v1/status", st); err != nil {
				statuses[i] = nodeStatus{Address: addr, Error: err.Error()}
				return
			}
			statuses[i] = nodeStatus{Address: addr, Status: st}
		})
	}
	wg.Wait()
	return statuses
}

// maxAnswerBytes bounds what is read of a node's answer.
const maxAnswerBytes = 1 << 20

// webClient keeps no connections: each command asks once.
var webClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// getJSON reads one document from a node's HTTP side.
func getJSON(ctx context.Context, addr, path string, into any) error {
	code, body, err := get(ctx, addr, path)
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return fmt.Errorf("answered %d: %s", code, strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("not the answer of a holdfast node: %w", err)
	}
	return nil
}

func get(ctx context.Context, addr, path string) (int, []byte, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(addr, "/")+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := webClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	return resp.StatusCode, body, err
}
