package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// all0A has 0A in every byte: no header may be searched for a newline.
const all0A = 0x0a0a0a0a0a0a0a0a

// sampleRequests holds 0A in every binary field, and text at both limits.
func sampleRequests() []Request {
	longKey, longLabel := []byte(strings.Repeat("k", MaxKeyLen)), []byte(strings.Repeat("l", MaxLabelLen))
	return []Request{
		{Op: OpHello, Version: 1, Owner: all0A, Text: []byte("host/app/1")},
		{Op: OpAcquire, Wait: 10, Lease: 10, Owner: all0A, Text: []byte("a")},
		{Op: OpRelease, Owner: all0A, Token: all0A, Text: []byte("ключ")},
		{Op: OpKeep, Lease: 10, Owner: all0A, Token: all0A, Text: []byte("k\x00\r")},
		{Op: OpCancel, Owner: all0A},
		{Op: OpQuery, Owner: all0A, Text: []byte(" ")},
		{Op: OpPing, Owner: all0A},
		{Op: OpKeep, Lease: 1, Token: 1<<64 - 1, Text: longKey},
		{Op: OpAcquire, Lease: 255, Wait: 255, Owner: 1<<64 - 1, Text: longKey},
		{Op: OpHello, Version: 1, Text: longLabel},
		{Op: OpHello, Version: 1, Text: []byte{}},
	}
}

// sampleReplies is the same for the other direction.
func sampleReplies() []Reply {
	long := []byte(strings.Repeat("t", MaxTextLen))
	return []Reply{
		{Op: OpHelloOK, Version: 1, Owner: all0A},
		{Op: OpAcquired, Owner: all0A, Token: all0A, WaitedMS: 0x0a0a0a0a},
		{Op: OpTimeout, Owner: all0A},
		{Op: OpBusy, Owner: all0A},
		{Op: OpReleased, Owner: all0A},
		{Op: OpKept, Owner: all0A},
		{Op: OpNotHeld, Owner: all0A},
		{Op: OpState, Owner: all0A, Token: all0A, Holder: all0A, RemainingMS: 0x0a0a0a0a, Waiters: 0x0a0a0a0a},
		{Op: OpPong, Owner: all0A},
		{Op: OpMoved, Owner: all0A, Text: []byte("n1:7420")},
		{Op: OpMoved, Owner: 1, Text: []byte{}},
		{Op: OpRefused, Code: CodeForbidden, Owner: all0A, Text: long},
	}
}

func encodeRequests(t testing.TB, rs []Request) []byte {
	t.Helper()
	var b []byte
	for i := range rs {
		var err error
		if b, err = AppendRequest(b, &rs[i]); err != nil {
			t.Fatalf("%+v: %v", rs[i], err)
		}
	}
	return b
}

func encodeReplies(t testing.TB, rs []Reply) []byte {
	t.Helper()
	var b []byte
	for i := range rs {
		var err error
		if b, err = AppendReply(b, &rs[i]); err != nil {
			t.Fatalf("%+v: %v", rs[i], err)
		}
	}
	return b
}

func expectRequests(t *testing.T, src io.Reader, want []Request) {
	t.Helper()
	r := NewRequestReader(src)
	for i := range want {
		var got Request
		if err := r.Read(&got); err != nil || !reflect.DeepEqual(got, want[i]) {
			t.Fatalf("request %d: got %+v, %v\nwant %+v", i, got, err, want[i])
		}
	}
	if err := r.Read(&Request{}); err != io.EOF {
		t.Fatalf("at the end: %v", err)
	}
}

func expectReplies(t *testing.T, src io.Reader, want []Reply) {
	t.Helper()
	r := NewReplyReader(src)
	for i := range want {
		var got Reply
		if err := r.Read(&got); err != nil || !reflect.DeepEqual(got, want[i]) {
			t.Fatalf("reply %d: got %+v, %v\nwant %+v", i, got, err, want[i])
		}
	}
	if err := r.Read(&Reply{}); err != io.EOF {
		t.Fatalf("at the end: %v", err)
	}
}

// TestAnyReads feeds the same stream in every way a network may cut it.
func TestAnyReads(t *testing.T) {
	ways := map[string]func(io.Reader) io.Reader{
		"at once":        func(r io.Reader) io.Reader { return r },
		"byte by byte":   iotest.OneByteReader,
		"halves":         iotest.HalfReader,
		"data with EOF":  iotest.DataErrReader,
		"bytes with EOF": func(r io.Reader) io.Reader { return iotest.DataErrReader(iotest.OneByteReader(r)) },
	}
	// Several times over, so that frames also lie across the buffer's end.
	var reqs []Request
	var reps []Reply
	for range 5 {
		reqs = append(reqs, sampleRequests()...)
		reps = append(reps, sampleReplies()...)
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			expectRequests(t, way(bytes.NewReader(encodeRequests(t, reqs))), reqs)
			expectReplies(t, way(bytes.NewReader(encodeReplies(t, reps))), reps)
		})
	}
}

// TestSplitEverywhere cuts one stream of all frames in two at every byte.
func TestSplitEverywhere(t *testing.T) {
	reqs, reps := sampleRequests(), sampleReplies()
	b := encodeRequests(t, reqs)
	for i := range b {
		expectRequests(t, io.MultiReader(bytes.NewReader(b[:i]), bytes.NewReader(b[i:])), reqs)
	}
	b = encodeReplies(t, reps)
	for i := range b {
		expectReplies(t, io.MultiReader(bytes.NewReader(b[:i]), bytes.NewReader(b[i:])), reps)
	}
}

// TestTruncatedEverywhere ends each frame after every byte but the last.
func TestTruncatedEverywhere(t *testing.T) {
	for _, req := range sampleRequests() {
		b := encodeRequests(t, []Request{req})
		for i := 1; i < len(b); i++ {
			r := NewRequestReader(iotest.DataErrReader(bytes.NewReader(b[:i])))
			for range 2 {
				if err := r.Read(&req); err != io.ErrUnexpectedEOF {
					t.Fatalf("%x: %v", b[:i], err)
				}
			}
		}
	}
	for _, rep := range sampleReplies() {
		b := encodeReplies(t, []Reply{rep})
		for i := 1; i < len(b); i++ {
			if err := NewReplyReader(bytes.NewReader(b[:i])).Read(&rep); err != io.ErrUnexpectedEOF {
				t.Fatalf("%x: %v", b[:i], err)
			}
		}
	}
}

// TestTextLimitPushed stops right after the deciding byte: the reader must
// answer without asking the source for one byte more.
func TestTextLimitPushed(t *testing.T) {
	mustNotRead := iotest.ErrReader(errors.New("read past the deciding byte"))
	for _, tc := range []struct {
		head string
		max  int
	}{
		{"A\x00\x01\x00\x00\x00\x00\x00\x00\x00\x0a", MaxKeyLen},
		{"R\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x01", MaxKeyLen},
		{"K\x01\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x01", MaxKeyLen},
		{"Q\x00\x00\x00\x00\x00\x00\x00\x0a", MaxKeyLen},
		{"H\x01\x00\x00\x00\x00\x00\x00\x00\x0a", MaxLabelLen},
	} {
		fits := tc.head + strings.Repeat("x", tc.max)
		var req Request
		r := NewRequestReader(io.MultiReader(strings.NewReader(fits+"\n"), mustNotRead))
		if err := r.Read(&req); err != nil || len(req.Text) != tc.max {
			t.Errorf("%q with %d bytes of text: %v", tc.head[0], tc.max, err)
		}
		r = NewRequestReader(iotest.OneByteReader(io.MultiReader(strings.NewReader(fits+"x"), mustNotRead)))
		for range 2 { // a fatal refusal stays
			var refusal *Refusal
			if err := r.Read(&req); !errors.As(err, &refusal) {
				t.Fatalf("%q: %v", tc.head[0], err)
			}
			if want := (Refusal{CodeKeyTooLong, 0x0a, refusal.Reason, true}); *refusal != want {
				t.Errorf("%q: %+v", tc.head[0], *refusal)
			}
		}
		if r.Buffered() || r.Partial() {
			t.Errorf("%q: something left to read after a fatal refusal", tc.head[0])
		}
	}
	for _, head := range []string{"M\x00\x00\x00\x00\x00\x00\x00\x0a", "E\x01\x00\x00\x00\x00\x00\x00\x00\x0a"} {
		fits := head + strings.Repeat("x", MaxTextLen)
		var rep Reply
		r := NewReplyReader(io.MultiReader(strings.NewReader(fits+"\n"), mustNotRead))
		if err := r.Read(&rep); err != nil || len(rep.Text) != MaxTextLen {
			t.Errorf("%q: %v", head[0], err)
		}
		r = NewReplyReader(iotest.OneByteReader(io.MultiReader(strings.NewReader(fits+"x"), mustNotRead)))
		if err := r.Read(&rep); !errors.Is(err, ErrMalformedReply) {
			t.Errorf("%q: %v", head[0], err)
		}
	}
}

// TestNeverMoreThanTheBuffer sends endless text in reads as large as they are
// asked for.
func TestNeverMoreThanTheBuffer(t *testing.T) {
	n := 0
	src := readerFunc(func(p []byte) (int, error) {
		for i := range p {
			p[i] = 'Q'
		}
		n += len(p)
		return len(p), nil
	})
	if err := NewRequestReader(src).Read(&Request{}); err == nil || n > bufferLen {
		t.Errorf("%v after %d bytes", err, n)
	}
}

// TestDeadlineLosesNothing interrupts every read by a timeout first.
func TestDeadlineLosesNothing(t *testing.T) {
	reqs := sampleRequests()
	b := bytes.NewReader(encodeRequests(t, reqs))
	timedOut := false
	r := NewRequestReader(readerFunc(func(p []byte) (int, error) {
		if timedOut = !timedOut; timedOut {
			return 0, os.ErrDeadlineExceeded
		}
		return b.Read(p[:1])
	}))
	for i := range reqs {
		var got Request
		err := r.Read(&got)
		for ; errors.Is(err, os.ErrDeadlineExceeded); err = r.Read(&got) {
		}
		if err != nil || !reflect.DeepEqual(got, reqs[i]) {
			t.Fatalf("request %d: %+v, %v", i, got, err)
		}
	}
}

func TestNoProgress(t *testing.T) {
	idle := readerFunc(func([]byte) (int, error) { return 0, nil })
	if err := NewRequestReader(idle).Read(&Request{}); err != io.ErrNoProgress {
		t.Error(err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
