package clustertest

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"
)

// section reads the first table of a section of the protocol's specification, so
// that what is tested is what is written there. The first row is the header.
func section(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	raw, err := os.ReadFile("../../wire/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(raw), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("no section %q", heading)
	}
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				return rows
			}
			continue
		}
		if strings.HasPrefix(line, "|---") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows
}

// specBytes decodes the notation of the specification: hexadecimal bytes, and
// 6b*513 for a repeated one.
func specBytes(t *testing.T, text string) (raw []byte) {
	t.Helper()
	for part := range strings.FieldsSeq(strings.Trim(text, "`")) {
		digits, count, repeated := strings.Cut(part, "*")
		times := 1
		if repeated {
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Fatal(err)
			}
			times = n
		}
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for range times {
			raw = append(raw, b...)
		}
	}
	return raw
}
