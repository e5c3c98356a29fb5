package admin

import (
	"fmt"
	"net/http"
	"strings"
)

// check is one line of a verbose probe.
type check struct {
	name string
	err  error
}

// livez says whether this process still does its work: a supervisor restarts it
// if not. A node without a quorum is alive, because a restart would not help it.
func (h *handler) livez(w http.ResponseWriter, r *http.Request) {
	h.probe(w, r, "not alive", check{"node", h.cfg.Node.Liveness()}, check{"clients", h.cfg.Clients.Alive(aliveWait)})
}

// readyz says whether clients should be sent here: this node leads, or knows who
// does and sends them on.
func (h *handler) readyz(w http.ResponseWriter, r *http.Request) {
	h.probe(w, r, "not ready", check{"cluster", h.cfg.Node.Ready()}, check{"clients", h.cfg.Clients.Alive(aliveWait)})
}

// probe answers in plain text, as tools that show a failed probe to people print
// its body.
func (h *handler) probe(w http.ResponseWriter, r *http.Request, negative string, checks ...check) {
	code, verdict := http.StatusOK, "ok"
	var lines strings.Builder
	for _, c := range checks {
		if c.err == nil {
			fmt.Fprintf(&lines, "[+] %s: ok\n", c.name)
			continue
		}
		code, verdict = http.StatusServiceUnavailable, negative
		fmt.Fprintf(&lines, "[-] %s: %s\n", c.name, strings.ReplaceAll(c.err.Error(), "\n", "; "))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	if r.URL.Query().Has("verbose") {
		fmt.Fprint(w, lines.String())
	}
	fmt.Fprintln(w, verdict)
}
