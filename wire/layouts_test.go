package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
)

// Every row is checked with both sets of field values: all bytes 0A where the
// range allows it, and all bytes different, so that no two fields and no two
// bytes can change places unseen.
var (
	valuesAll0A = map[string]uint64{
		"wait": 0x0a, "lease": 0x0a, "owner": all0A, "token": all0A, "version": Version,
		"waited_ms": 0x0a0a0a0a, "holder": all0A, "remaining_ms": 0x0a0a0a0a, "waiters": 0x0a0a0a0a, "code": 9,
	}
	valuesDistinct = map[string]uint64{
		"wait": 0x31, "lease": 0x32, "owner": 0x4142434445464748, "token": 0x5152535455565758, "version": Version,
		"waited_ms": 0x61626364, "holder": 0x7172737475767778, "remaining_ms": 0x81828384, "waiters": 0x91929394, "code": 8,
	}
	values = valuesAll0A // the set in use
)

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

// direction is one of the two op tables and the codec it describes.
type direction struct {
	heading string
	layouts *[256]layout
	encode  func(op Op, layout string, n int) ([]byte, error)
	decode  func(b []byte, op Op, layout string, n int) error // nil: decoded to what the layout says
}

var directions = []direction{
	{
		heading: "4. Requests",
		layouts: &requestLayouts,
		encode: func(op Op, layout string, n int) ([]byte, error) {
			r := requestOf(op, layout, n)
			return AppendRequest(nil, &r)
		},
		decode: func(b []byte, op Op, layout string, n int) error {
			var got Request
			err := NewRequestReader(bytes.NewReader(b)).Read(&got)
			if want := requestOf(op, layout, n); err == nil && !reflect.DeepEqual(got, want) {
				return fmt.Errorf("got %+v, want %+v", got, want)
			}
			return err
		},
	},
	{
		heading: "5. Replies",
		layouts: &replyLayouts,
		encode: func(op Op, layout string, n int) ([]byte, error) {
			r := replyOf(op, layout, n)
			return AppendReply(nil, &r)
		},
		decode: func(b []byte, op Op, layout string, n int) error {
			var got Reply
			err := NewReplyReader(bytes.NewReader(b)).Read(&got)
			if want := replyOf(op, layout, n); err == nil && !reflect.DeepEqual(got, want) {
				return fmt.Errorf("got %+v, want %+v", got, want)
			}
			return err
		},
	},
}

// TestDocumentLayouts checks both op tables row by row, and that the codec
// knows no op that is not in them.
func TestDocumentLayouts(t *testing.T) {
	for _, dir := range directions {
		documented := map[byte]bool{}
		for _, row := range table(t, dir.heading) {
			op := codes(row["op"])[0][0]
			if documented[op] {
				t.Errorf("%s: %c twice", dir.heading, op)
			}
			documented[op] = true
			t.Run(row["name"], func(t *testing.T) {
				for _, values = range []map[string]uint64{valuesAll0A, valuesDistinct} {
					dir.checkRow(t, op, row["layout"], row["frame bytes"])
				}
			})
		}
		for op := range dir.layouts {
			if dir.layouts[op].known != documented[byte(op)] {
				t.Errorf("%s: %q known to the codec: %v", dir.heading, rune(op), dir.layouts[op].known)
			}
		}
	}
}

// checkRow encodes and decodes the shortest and the longest frame of a row,
// and whatever is just outside of it must be refused.
func (dir direction) checkRow(t *testing.T, op byte, layout, frameBytes string) {
	if codes(layout)[0] != string(op) {
		t.Errorf("layout begins with %s", codes(layout)[0])
	}
	low, high := textSpan(t, layout)
	for _, n := range []int{low, high} {
		frame := build(t, layout, n)
		if b, err := dir.encode(Op(op), layout, n); err != nil || !bytes.Equal(b, frame) {
			t.Errorf("encoded %x, %v\nwant %x", b, err, frame)
		}
		if err := dir.decode(frame, Op(op), layout, n); err != nil {
			t.Errorf("decode %x: %v", frame, err)
		}
	}
	least, most := span(t, frameBytes)
	if a, b := len(build(t, layout, low)), len(build(t, layout, high)); a != least || b != most {
		t.Errorf("%d..%d bytes, the table says %s", a, b, frameBytes)
	}
	if high < 0 {
		frame := build(t, layout, 0)
		frame[len(frame)-1] = 'x'
		if err := dir.decode(frame, Op(op), layout, -1); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("without 0A: %v", err)
		}
		return
	}
	if _, err := dir.encode(Op(op), layout, high+1); err == nil {
		t.Errorf("%d bytes of text encoded", high+1)
	}
	for _, n := range []int{low - 1, high + 1} {
		if n < 0 {
			continue
		}
		if err := dir.decode(build(t, layout, n), Op(op), layout, n); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes of text: %v", n, err)
		}
	}
}
