package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

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
