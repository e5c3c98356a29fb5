package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
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

// values gives every field of the document one number that has 0A in each of
// its bytes where its range allows that.
var values = map[string]uint64{
	"wait": 0x0a, "lease": 0x0a, "owner": 0x0a0a0a0a0a0a0a0a, "token": 0x0a0b0a0b0a0b0a0b, "version": Version,
	"waited_ms": 0x0a0a0a0b, "holder": 0x0a0c0a0c0a0c0a0c, "remaining_ms": 0x0a0a0a0c, "waiters": 0x0a0a0a0d, "code": 9,
}

// build assembles a frame from a layout cell alone, with n bytes of text.
func build(t *testing.T, layout string, n int) []byte {
	t.Helper()
	parts := codes(layout)
	frame := []byte(parts[0])
	for _, p := range parts[1 : len(parts)-1] {
		name, size, _ := strings.Cut(p, ":")
		if low, high := span(t, size); low != high {
			frame = append(frame, strings.Repeat("t", n)...)
			continue
		}
		v, known := values[name]
		if !known {
			t.Fatalf("field %q in layout %s", name, layout)
		}
		for i := number(t, size) - 1; i >= 0; i-- {
			frame = append(frame, byte(v>>(8*i)))
		}
	}
	if parts[len(parts)-1] != "0A" {
		t.Fatalf("layout %s does not end in 0A", layout)
	}
	return append(frame, '\n')
}

// textSpan returns the limits of a layout's text, -1 if it has none.
func textSpan(t *testing.T, layout string) (low, high int) {
	t.Helper()
	for _, p := range codes(layout) {
		if _, size, ok := strings.Cut(p, ":"); ok && strings.Contains(size, "..") {
			return span(t, size)
		}
	}
	return -1, -1
}

// has returns the value of a field that the layout has, else 0.
func has(layout, field string) uint64 {
	if strings.Contains(layout, "`"+field+":") {
		return values[field]
	}
	return 0
}

func requestOf(op Op, layout string, n int) Request {
	r := Request{Op: op, Wait: uint8(has(layout, "wait")), Lease: uint8(has(layout, "lease")), Version: uint8(has(layout, "version")),
		Owner: has(layout, "owner"), Token: has(layout, "token")}
	if n >= 0 {
		r.Text = []byte(strings.Repeat("t", n))
	}
	return r
}

func replyOf(op Op, layout string, n int) Reply {
	r := Reply{Op: op, Code: Code(has(layout, "code")), Version: uint8(has(layout, "version")), Owner: has(layout, "owner"),
		Token: has(layout, "token"), Holder: has(layout, "holder"), WaitedMS: uint32(has(layout, "waited_ms")),
		RemainingMS: uint32(has(layout, "remaining_ms")), Waiters: uint32(has(layout, "waiters"))}
	if n >= 0 {
		r.Text = []byte(strings.Repeat("t", n))
	}
	return r
}

// TestDocumentLayouts checks both op tables: encoding, decoding, limits, sizes,
// and that the codec knows no op that is not in them.
func TestDocumentLayouts(t *testing.T) {
	for _, dir := range []struct {
		heading string
		layouts *[256]layout
		encode  func(op Op, layout string, n int) ([]byte, error)
		decode  func(b []byte, op Op, layout string, n int) error
	}{
		{"4. Requests", &requestLayouts,
			func(op Op, l string, n int) ([]byte, error) { r := requestOf(op, l, n); return AppendRequest(nil, &r) },
			func(b []byte, op Op, l string, n int) error {
				var got Request
				err := NewRequestReader(bytes.NewReader(b)).Read(&got)
				if want := requestOf(op, l, n); err == nil && !reflect.DeepEqual(got, want) {
					return fmt.Errorf("got %+v, want %+v", got, want)
				}
				return err
			}},
		{"5. Replies", &replyLayouts,
			func(op Op, l string, n int) ([]byte, error) { r := replyOf(op, l, n); return AppendReply(nil, &r) },
			func(b []byte, op Op, l string, n int) error {
				var got Reply
				err := NewReplyReader(bytes.NewReader(b)).Read(&got)
				if want := replyOf(op, l, n); err == nil && !reflect.DeepEqual(got, want) {
					return fmt.Errorf("got %+v, want %+v", got, want)
				}
				return err
			}},
	} {
		documented := map[byte]bool{}
		for _, row := range table(t, dir.heading) {
			op, layout := codes(row["op"])[0][0], row["layout"]
			if documented[op] {
				t.Errorf("%s: %c twice", dir.heading, op)
			}
			documented[op] = true
			if codes(layout)[0] != string(op) {
				t.Errorf("%c: layout begins with %s", op, codes(layout)[0])
			}
			low, high := textSpan(t, layout)
			for _, n := range []int{low, high} {
				frame := build(t, layout, n)
				if b, err := dir.encode(Op(op), layout, n); err != nil || !bytes.Equal(b, frame) {
					t.Errorf("%s %c: encoded %x, %v\nwant %x", dir.heading, op, b, err, frame)
				}
				if err := dir.decode(frame, Op(op), layout, n); err != nil {
					t.Errorf("%s %c: decode %x: %v", dir.heading, op, frame, err)
				}
			}
			least, most := span(t, row["frame bytes"])
			if a, b := len(build(t, layout, low)), len(build(t, layout, high)); a != least || b != most {
				t.Errorf("%s %c: %d..%d bytes, the table says %s", dir.heading, op, a, b, row["frame bytes"])
			}
			if high < 0 {
				frame := build(t, layout, 0)
				frame[len(frame)-1] = 'x'
				if err := dir.decode(frame, Op(op), layout, -1); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%s %c without 0A: %v", dir.heading, op, err)
				}
				continue
			}
			if _, err := dir.encode(Op(op), layout, high+1); err == nil {
				t.Errorf("%s %c: %d bytes of text encoded", dir.heading, op, high+1)
			}
			if err := dir.decode(build(t, layout, high+1), Op(op), layout, high+1); err == nil {
				t.Errorf("%s %c: %d bytes of text decoded", dir.heading, op, high+1)
			}
			if low > 0 {
				if err := dir.decode(build(t, layout, low-1), Op(op), layout, low-1); err == nil {
					t.Errorf("%s %c: %d bytes of text decoded", dir.heading, op, low-1)
				}
			}
		}
		for op := range dir.layouts {
			if dir.layouts[op].known != documented[byte(op)] {
				t.Errorf("%s: %q known to the codec: %v", dir.heading, rune(op), dir.layouts[op].known)
			}
		}
	}
}

// TestDocumentAnswers holds "replies" of one table against "answers" of the other.
func TestDocumentAnswers(t *testing.T) {
	pairs := map[string]int{}
	for _, row := range table(t, "4. Requests") {
		for _, reply := range codes(row["replies"]) {
			pairs[codes(row["op"])[0]+" -> "+reply] |= 1
		}
	}
	for _, row := range table(t, "5. Replies") {
		for _, req := range codes(row["answers"]) {
			pairs[req+" -> "+codes(row["op"])[0]] |= 2
		}
	}
	for pair, in := range pairs {
		if in != 3 {
			t.Errorf("%s stands in one table only", pair)
		}
	}
}

func TestDocumentFields(t *testing.T) {
	sizes := map[string]string{}
	for _, row := range table(t, "3. Fields") {
		sizes[codes(row["field"])[0]] = row["bytes"]
	}
	used := map[string]bool{}
	for _, row := range append(table(t, "4. Requests"), table(t, "5. Replies")...) {
		for _, p := range codes(row["layout"]) {
			name, size, isField := strings.Cut(p, ":")
			if isField && sizes[name] != size {
				t.Errorf("%s is %s in a layout and %q among the fields", name, size, sizes[name])
			}
			used[name] = true
		}
	}
	for name := range sizes {
		if !used[name] {
			t.Errorf("field %s is in no layout", name)
		}
	}
}

func TestDocumentLimits(t *testing.T) {
	want := map[string]int{"Version": Version, "MaxKeyLen": MaxKeyLen, "MaxLabelLen": MaxLabelLen, "MaxAddrLen": MaxAddrLen,
		"MaxTextLen": MaxTextLen, "MaxRequestLen": MaxRequestLen, "MaxReplyLen": MaxReplyLen}
	for _, row := range table(t, "6. Limits") {
		name := codes(row["constant"])[0]
		if v, ok := want[name]; !ok || v != number(t, row["value"]) {
			t.Errorf("%s is %d, the table says %s", name, v, row["value"])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not in the table: %v", want)
	}
}

func TestDocumentCodes(t *testing.T) {
	documented := map[Code]bool{}
	for _, row := range table(t, "7. Refusal codes") {
		c := Code(number(t, row["code"]))
		documented[c] = true
		if c.String() != row["name"] || c.Fatal() != (row["session"] == "closed") {
			t.Errorf("code %d: %q, fatal %v; the table says %v", c, c, c.Fatal(), row)
		}
	}
	for i := range 256 {
		c := Code(i)
		_, err := AppendReply(nil, &Reply{Op: OpRefused, Code: c})
		if c.Known() != documented[c] || (err == nil) != documented[c] {
			t.Errorf("code %d: known %v, documented %v, sent: %v", i, c.Known(), documented[c], err)
		}
		// A code of a later server is still a refusal to this client.
		err = NewReplyReader(bytes.NewReader([]byte{'E', byte(i), 0, 0, 0, 0, 0, 0, 0, 1, '\n'})).Read(&Reply{})
		if (err == nil) != (i != 0) {
			t.Errorf("code %d read: %v", i, err)
		}
	}
}

// TestDocumentBadInput feeds the bytes of each row, then a ping.
func TestDocumentBadInput(t *testing.T) {
	ping := []byte("P\x00\x00\x00\x00\x00\x00\x00\x09\n")
	for _, row := range table(t, "8. Bad input") {
		t.Run(row["input"], func(t *testing.T) {
			in := unhex(t, codes(row["bytes"])[0])
			for _, way := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
				req := Request{Op: OpPing, Owner: 1}
				if row["reply"] == "none" {
					if err := NewRequestReader(way(bytes.NewReader(in))).Read(&req); err != io.ErrUnexpectedEOF {
						t.Fatal(err)
					}
					continue
				}
				r := NewRequestReader(way(bytes.NewReader(append(in, ping...))))
				err := r.Read(&req)
				var refusal *Refusal
				if !errors.As(err, &refusal) {
					t.Fatal(err)
				}
				want := Refusal{Code(number(t, row["code"])), uint64(number(t, row["owner"])), refusal.Reason, row["session"] == "closed"}
				if *refusal != want || !reflect.DeepEqual(req, Request{}) {
					t.Fatalf("got %+v with %+v, want %+v", *refusal, req, want)
				}
				err = r.Read(&req)
				if want.Fatal {
					if !errors.Is(err, refusal) {
						t.Fatalf("after a fatal refusal: %v", err)
					}
				} else if err != nil || req.Op != OpPing || req.Owner != 9 {
					t.Fatalf("the next frame: %+v, %v", req, err)
				}
			}
		})
	}
}

// TestDocumentConversation: each line of the example decodes and encodes to itself.
func TestDocumentConversation(t *testing.T) {
	for _, row := range table(t, "16. A conversation in bytes") {
		b := unhex(t, codes(row["bytes"])[0])
		var again []byte
		var err error
		if codes(row["side"])[0] == ">" {
			var r Request
			if err = NewRequestReader(bytes.NewReader(b)).Read(&r); err == nil {
				again, err = AppendRequest(nil, &r)
			}
		} else {
			var r Reply
			if err = NewReplyReader(bytes.NewReader(b)).Read(&r); err == nil {
				again, err = AppendReply(nil, &r)
			}
		}
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: %x, %v", row["meaning"], again, err)
		}
	}
}
