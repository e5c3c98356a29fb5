package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// failure is the body of every answer that is not a success, but for the probes,
// which speak plain text.
type failure struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, code int, format string, args ...any) {
	writeJSON(w, code, failure{fmt.Sprintf(format, args...)})
}

// writeJSON writes v, indented: people read it as often as programs do. A write
// that fails means that the reader is gone, and there is nobody to tell.
func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}

// checkParams refuses a query that says something this endpoint does not
// understand: a misspelled limit must not pass for none.
func checkParams(w http.ResponseWriter, r *http.Request, known []string) bool {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, "the query is malformed: %v", err)
		return false
	}
	for name, values := range query {
		if !slices.Contains(known, name) {
			what := "this endpoint takes none"
			if len(known) > 0 {
				what = "there are " + strings.Join(known, ", ")
			}
			fail(w, http.StatusBadRequest, "unknown parameter %s: %s", printable(name), what)
			return false
		}
		if len(values) > 1 {
			fail(w, http.StatusBadRequest, "the parameter %s is given %d times: give it once", name, len(values))
			return false
		}
	}
	return true
}

// printable quotes and shortens what a stranger sent, for an error text.
func printable(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "..."
	}
	return fmt.Sprintf("%q", s)
}
