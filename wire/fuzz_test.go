package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"testing/iotest"
)

// FuzzRequests: no input panics a server; what is decoded encodes to the very
// bytes that were read and decodes to the same again; and the way the network
// cuts the stream makes no difference.
func FuzzRequests(f *testing.F) {
	f.Add(encodeRequests(f, sampleRequests()))
	for name := range goldenRequests {
		f.Add(golden(f, name))
	}
	f.Add([]byte("A\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0ak\nP12345678\n"))
	f.Add([]byte("Q12345678\n\nQ12345678\xff\nH\x02"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, slow := NewRequestReader(bytes.NewReader(in)), NewRequestReader(iotest.OneByteReader(bytes.NewReader(in)))
		used := 0
		for {
			var a, b Request
			errA, errB := whole.Read(&a), slow.Read(&b)
			if !reflect.DeepEqual(errA, errB) || !reflect.DeepEqual(a, b) {
				t.Fatalf("at once: %+v, %v\nbytewise: %+v, %v", a, errA, b, errB)
			}
			if len(whole.frames.buf) != bufferLen || len(slow.frames.buf) != bufferLen {
				t.Fatal("the buffer grew")
			}
			var refusal *Refusal
			if errors.As(errA, &refusal) {
				checkRefusal(t, refusal)
				if refusal.Fatal {
					return
				}
				// The bad frame is behind us: it had no 0A in its text.
				_, n := split(in[used:], &requestLayouts)
				used += n
				continue
			}
			if errA != nil {
				if errA != io.EOF && errA != io.ErrUnexpectedEOF {
					t.Fatal(errA)
				}
				return
			}
			enc, err := AppendRequest(nil, &a)
			if err != nil || !bytes.HasPrefix(in[used:], enc) {
				t.Fatalf("%+v encodes to %x, %v", a, enc, err)
			}
			used += len(enc)
			var again Request
			if err := NewRequestReader(bytes.NewReader(enc)).Read(&again); err != nil || !reflect.DeepEqual(a, again) {
				t.Fatalf("%+v became %+v, %v", a, again, err)
			}
		}
	})
}

// checkRefusal: every refusal the codec makes must itself be a sendable reply.
func checkRefusal(t *testing.T, r *Refusal) {
	t.Helper()
	if r.Fatal != r.Code.Fatal() || r.Reason == "" {
		t.Fatalf("%+v", *r)
	}
	if _, err := AppendReply(nil, &Reply{Op: OpRefused, Code: r.Code, Owner: r.Owner, Text: []byte(r.Reason)}); err != nil {
		t.Fatalf("%+v: %v", *r, err)
	}
}

// FuzzReplies is the same for a client that reads from a hostile server.
func FuzzReplies(f *testing.F) {
	f.Add(encodeReplies(f, sampleReplies()))
	for name := range goldenReplies {
		f.Add(golden(f, name))
	}
	f.Add([]byte("E\xfa12345678new code\nP12345678\n"))
	f.Add([]byte("P123456789"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, slow := NewReplyReader(bytes.NewReader(in)), NewReplyReader(iotest.OneByteReader(bytes.NewReader(in)))
		used := 0
		for {
			var a, b Reply
			errA, errB := whole.Read(&a), slow.Read(&b)
			if errA != errB || !reflect.DeepEqual(a, b) {
				t.Fatalf("at once: %+v, %v\nbytewise: %+v, %v", a, errA, b, errB)
			}
			if len(whole.frames.buf) != bufferLen || len(slow.frames.buf) != bufferLen {
				t.Fatal("the buffer grew")
			}
			if errA != nil {
				if errA != io.EOF && errA != io.ErrUnexpectedEOF && !errors.Is(errA, ErrMalformedReply) {
					t.Fatal(errA)
				}
				return
			}
			enc, err := AppendReply(nil, &a)
			if a.Op == OpRefused && !a.Code.Known() {
				// Tolerated when read, never sent.
				if err == nil || len(enc) != 0 {
					t.Fatalf("sent %+v", a)
				}
				used += 1 + 1 + 8 + len(a.Text) + 1
				continue
			}
			if err != nil || !bytes.HasPrefix(in[used:], enc) {
				t.Fatalf("%+v encodes to %x, %v", a, enc, err)
			}
			used += len(enc)
			var again Reply
			if err := NewReplyReader(bytes.NewReader(enc)).Read(&again); err != nil || !reflect.DeepEqual(a, again) {
				t.Fatalf("%+v became %+v, %v", a, again, err)
			}
		}
	})
}

// FuzzAppend gives the encoders any field values: what they accept, the peer
// accepts and reads back; what they refuse leaves dst alone.
func FuzzAppend(f *testing.F) {
	f.Add(byte('A'), byte(1), byte(1), byte(1), uint64(1), uint64(1), uint32(1), []byte("k"))
	f.Add(byte('E'), byte(9), byte(0), byte(0), uint64(all0A), uint64(0), uint32(0), []byte("a\nb"))
	f.Fuzz(func(t *testing.T, op, x, y, z byte, owner, token uint64, n uint32, text []byte) {
		req := Request{Op: Op(op), Wait: x, Lease: y, Version: z, Owner: owner, Token: token, Text: text}
		b, err := AppendRequest([]byte{1}, &req)
		if err != nil {
			var refusal *Refusal
			if !errors.As(err, &refusal) || !bytes.Equal(b, []byte{1}) {
				t.Fatalf("%x, %v", b, err)
			}
			checkRefusal(t, refusal)
		} else {
			var got Request
			if err := NewRequestReader(bytes.NewReader(b[1:])).Read(&got); err != nil || got.Op != req.Op || got.Owner != owner {
				t.Fatalf("%+v became %+v, %v", req, got, err)
			}
		}
		rep := Reply{Op: Op(op), Code: Code(x), Version: z, Owner: owner, Token: token, Holder: owner, WaitedMS: n, RemainingMS: n, Waiters: n, Text: text}
		b, err = AppendReply([]byte{1}, &rep)
		if err != nil {
			if !errors.Is(err, ErrMalformedReply) || !bytes.Equal(b, []byte{1}) {
				t.Fatalf("%x, %v", b, err)
			}
			return
		}
		var got Reply
		if err := NewReplyReader(bytes.NewReader(b[1:])).Read(&got); err != nil || got.Op != rep.Op || got.Owner != owner {
			t.Fatalf("%+v became %+v, %v", rep, got, err)
		}
	})
}
