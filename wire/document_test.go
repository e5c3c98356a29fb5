package wire

import (
	"bytes"
	"encoding/hex"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// table returns the rows of the first table below the given heading of
// PROTOCOL.md, each as column name to cell.
func table(t *testing.T, heading string) []map[string]string {
	t.Helper()
	doc, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(doc), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("PROTOCOL.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var columns []string
	var rows []map[string]string
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			if columns != nil {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case columns == nil:
			columns = cells
		case len(cells) != len(columns):
			t.Fatalf("%s: a row of %d cells under %d columns: %s", heading, len(cells), len(columns), line)
		case !strings.HasPrefix(cells[0], "---"):
			row := map[string]string{}
			for i := range cells {
				row[columns[i]] = cells[i]
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("no table under %q", heading)
	}
	return rows
}

var inCode = regexp.MustCompile("`([^`]*)`")

// codes returns what stands in code style in a cell.
func codes(cell string) []string {
	var out []string
	for _, m := range inCode.FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

// unhex decodes "41 00 6b*513".
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	var out []byte
	for f := range strings.FieldsSeq(s) {
		digits, times, repeated := strings.Cut(f, "*")
		n := 1
		if repeated {
			n = number(t, times)
		}
		b, err := hex.DecodeString(digits)
		if err != nil || len(b) != 1 {
			t.Fatalf("bytes %q: %q", s, f)
		}
		out = append(out, bytes.Repeat(b, n)...)
	}
	return out
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// span parses "8" or "1..512".
func span(t *testing.T, s string) (low, high int) {
	t.Helper()
	a, b, isRange := strings.Cut(s, "..")
	if !isRange {
		b = a
	}
	return number(t, a), number(t, b)
}
