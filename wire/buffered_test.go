package wire

import (
	"bytes"
	"errors"
	"testing"
)

// TestBufferedAndPartial watches both answers as bytes trickle in.
func TestBufferedAndPartial(t *testing.T) {
	ping := encodeRequests(t, []Request{{Op: OpPing, Owner: 1}})
	stop := errors.New("stop")
	src := &chunks{parts: [][]byte{append(ping, ping[:4]...), ping[4:], []byte("P23456789?")}, err: stop}
	r, req := NewRequestReader(src), Request{}
	expect := func(when string, buffered, partial bool) {
		t.Helper()
		if r.Buffered() != buffered || r.Partial() != partial {
			t.Errorf("%s: Buffered %v, Partial %v", when, r.Buffered(), r.Partial())
		}
	}
	read := func() {
		t.Helper()
		if err := r.Read(&req); err != nil {
			t.Fatal(err)
		}
	}
	expect("new", false, false)
	read()
	expect("part of the second", false, true)
	src.pause = true
	if err := r.Read(&req); err != stop {
		t.Fatal(err)
	}
	expect("interrupted", false, true)
	src.pause = false
	read()
	expect("second read", false, false)
	src.parts = [][]byte{append(ping, src.parts[0]...)}
	read()
	expect("bad frame waits", true, false)
	src.pause = true
	if err := r.Read(&req); !errors.As(err, new(*Refusal)) {
		t.Fatal(err)
	}
	expect("refused", false, false)

	reply := encodeReplies(t, []Reply{{Op: OpPong, Owner: 1}, {Op: OpPong, Owner: 2}})
	c := NewReplyReader(bytes.NewReader(reply))
	for i, want := range []bool{true, false} {
		if err := c.Read(&Reply{}); err != nil || c.Buffered() != want {
			t.Errorf("reply %d: %v, Buffered %v", i, err, c.Buffered())
		}
	}
}

// chunks gives one part per read; err when there is none, or while paused.
type chunks struct {
	parts [][]byte
	err   error
	pause bool
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.pause || len(c.parts) == 0 {
		return 0, c.err
	}
	n := copy(p, c.parts[0])
	c.parts = c.parts[1:]
	return n, nil
}
