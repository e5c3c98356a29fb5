package admin

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented reads the table of METRICS.md: name, type and labels of each row.
func documented(t *testing.T) (rows []string) {
	t.Helper()
	raw, err := os.ReadFile("METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(holdfast_[a-z_]+)` \\| (gauge|counter) \\|([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(string(raw), -1) {
		labels := strings.ReplaceAll(strings.TrimSpace(m[3]), "`", "")
		rows = append(rows, strings.TrimSpace(m[1]+" "+m[2]+" "+labels))
	}
	slices.Sort(rows)
	return rows
}

func TestMetricsAreTheDocumentedOnes(t *testing.T) {
	s := newSite(t)
	families, err := s.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "holdfast_") {
			continue
		}
		values := map[string][]string{}
		var names []string
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(names, l.GetName()) {
					names = append(names, l.GetName())
				}
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
		}
		line := f.GetName() + " " + strings.ToLower(f.GetType().String())
		for _, n := range names {
			line += " " + n
			if f.GetName() != "holdfast_build_info" {
				slices.Sort(values[n])
				line += "=" + strings.Join(values[n], "/")
			}
		}
		got = append(got, line)
	}
	slices.Sort(got)
	if want := documented(t); !slices.Equal(got, want) {
		t.Fatalf("METRICS.md and the registry differ:\nregistry:\n  %s\nMETRICS.md:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestMetricsShowTheReading(t *testing.T) {
	s := newSite(t)
	s.grant(0, "a", 1e9)
	body := s.get("/metrics?collect[]=x", http.StatusOK)
	for _, line := range []string{
		"holdfast_ready 1", "holdfast_leader 1", "holdfast_term 3", "holdfast_epoch 7",
		"holdfast_applied_index 41", "holdfast_commit_index 42", "holdfast_last_index 43",
		"holdfast_cluster_clock_seconds 90.5", "holdfast_leader_contact_age_seconds 0",
		`holdfast_members{suffrage="voter"} 1`, `holdfast_members{suffrage="nonvoter"} 1`, "holdfast_grants 1",
		"holdfast_sessions 5", "holdfast_waiters 4", "holdfast_queue_operations 3",
		"holdfast_sessions_accepted_total 20", "holdfast_sessions_turned_away_total 2", "holdfast_acquires_total 100",
		`holdfast_answers_total{answer="acquired"} 61`, `holdfast_answers_total{answer="timeout"} 12`, `holdfast_answers_total{answer="busy"} 13`,
		`holdfast_answers_total{answer="moved"} 14`, `holdfast_answers_total{answer="refused"} 15`, `holdfast_answers_total{answer="released"} 16`,
		`holdfast_answers_total{answer="kept"} 17`, `holdfast_answers_total{answer="not_held"} 18`, `holdfast_answers_total{answer="unknown"} 6`,
		"holdfast_grants_expired_total 19", "holdfast_grants_orphaned_total 1", "holdfast_grant_wait_seconds_total 2.5",
		"holdfast_log_entries_total 70", "holdfast_log_operations_total 140",
	} {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if !regexp.MustCompile(`\nholdfast_build_info\{goversion="go[^"]+",version="v1.2.3"\} 1\n`).MatchString(body) {
		t.Error("no build info")
	}
	for _, other := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if !strings.Contains(body, "\n"+other+" ") {
			t.Errorf("no %s", other)
		}
	}
	s.node.status.LastContact = -1
	s.node.ready = fmt.Errorf("no leader is known")
	body = s.get("/metrics", http.StatusOK)
	for _, line := range []string{"holdfast_ready 0", "holdfast_leader_contact_age_seconds -1"} {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
}
