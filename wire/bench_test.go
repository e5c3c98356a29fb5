package wire

import (
	"testing"
)

// repeat is an endless stream of the same bytes, as full as each read allows.
type repeat struct {
	b  []byte
	at int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		c := copy(p[n:], r.b[r.at:])
		n += c
		r.at = (r.at + c) % len(r.b)
	}
	return n, nil
}

// TestNoAllocationPerFrame covers all frames of both directions, both ways.
func TestNoAllocationPerFrame(t *testing.T) {
	reqs, reps := sampleRequests(), sampleReplies()
	rr := NewRequestReader(&repeat{b: encodeRequests(t, reqs)})
	pr := NewReplyReader(&repeat{b: encodeReplies(t, reps)})
	buf := make([]byte, 0, 2*bufferLen)
	var req Request
	var rep Reply
	key := string(reqs[1].Text)
	for name, f := range map[string]func() error{
		"read request": func() error { rr.Buffered(); rr.Partial(); return rr.Read(&req) },
		"read reply":   func() error { pr.Buffered(); return pr.Read(&rep) },
		"append requests": func() (err error) {
			b := buf
			for i := range reqs {
				if b, err = AppendRequest(b, &reqs[i]); err != nil {
					return err
				}
			}
			return nil
		},
		"append replies": func() (err error) {
			b := buf
			for i := range reps {
				if b, err = AppendReply(b, &reps[i]); err != nil {
					return err
				}
			}
			return nil
		},
		"valid key": func() error { return ValidKey(key) },
	} {
		allocs := testing.AllocsPerRun(1000, func() {
			if err := f(); err != nil {
				t.Fatal(name, err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

func BenchmarkReadRequest(b *testing.B) {
	frame := encodeRequests(b, []Request{{Op: OpAcquire, Wait: 30, Lease: 10, Owner: 1, Text: []byte("billing/invoice/42")}})
	r := NewRequestReader(&repeat{b: frame})
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	var req Request
	for b.Loop() {
		if err := r.Read(&req); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadReply(b *testing.B) {
	frame := encodeReplies(b, []Reply{{Op: OpAcquired, Owner: 1, Token: 2, WaitedMS: 3}})
	r := NewReplyReader(&repeat{b: frame})
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	var rep Reply
	for b.Loop() {
		if err := r.Read(&rep); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendRequest(b *testing.B) {
	req := Request{Op: OpAcquire, Wait: 30, Lease: 10, Owner: 1, Text: []byte("billing/invoice/42")}
	buf := make([]byte, 0, MaxRequestLen)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := AppendRequest(buf, &req); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendReply(b *testing.B) {
	rep := Reply{Op: OpAcquired, Owner: 1, Token: 2, WaitedMS: 3}
	buf := make([]byte, 0, MaxReplyLen)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := AppendReply(buf, &rep); err != nil {
			b.Fatal(err)
		}
	}
}
