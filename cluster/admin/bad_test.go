package admin

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestBadRequests(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		method, target string
		code           int
		says           string
	}{
		{"POST", "/v1/status", 405, `the method \"POST\" is not allowed`},
		{"DELETE", "/v1/locks", 405, "read with GET"},
		{"GET", "/", 404, "/v1/status"},
		{"GET", "/v1/lock", 404, "/v1/locks"},
		{"GET", "/v1/locks?limit=0", 400, "from 1 to 10000"},
		{"GET", "/v1/locks?limit=10001", 400, "from 1 to 10000"},
		{"GET", "/v1/locks?limit=", 400, "from 1 to 10000"},
		{"GET", "/v1/locks?limit=ten", 400, `limit is \"ten\"`},
		{"GET", "/v1/locks?lmit=10", 400, "there are prefix, after, limit"},
		{"GET", "/v1/locks?limit=1&limit=2", 400, "give it once"},
		{"GET", "/v1/locks?prefix=%ff", 400, "prefix must be UTF-8"},
		{"GET", "/v1/locks?after=" + strings.Repeat("k", 513), 400, "at most 512 bytes"},
		{"GET", "/v1/locks?a;b", 400, "malformed"},
		{"GET", "/v1/status?x=" + strings.Repeat("k", 3000), 400, "takes none"},
	} {
		code, body, header := s.do(c.method, c.target)
		var f failure
		if err := json.Unmarshal([]byte(body), &f); err != nil || f.Error == "" {
			t.Errorf("%s %s: not a JSON error: %q", c.method, c.target, body)
		}
		if code != c.code || !strings.Contains(body, c.says) || len(body) > 400 {
			t.Errorf("%s %.40s: %d %q, want %d and %q", c.method, c.target, code, body, c.code, c.says)
		}
		if code == 405 && header.Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow: %q", header.Get("Allow"))
		}
	}
}

func TestMissingPartsAreNamed(t *testing.T) {
	s := newSite(t)
	full := Config{Node: s.node, Clients: s.clients, Locks: s.table, Registry: s.reg}
	for name, cfg := range map[string]Config{
		"Node":     {Clients: full.Clients, Locks: full.Locks, Registry: full.Registry},
		"Clients":  {Node: full.Node, Locks: full.Locks, Registry: full.Registry},
		"Locks":    {Node: full.Node, Clients: full.Clients, Registry: full.Registry},
		"Registry": {Node: full.Node, Clients: full.Clients, Locks: full.Locks},
		"register": full, // the names are taken already
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
