package wire

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The values behind testdata/golden. The files were written by hand from
// PROTOCOL.md and not by this codec: they are what the two are held against.
const (
	goldenOwner = 0x0102030405060708
	goldenToken = 0x000a0b0c0d0e0f10
	goldenKey   = "jobs/ä"
)

var goldenRequests = map[string]Request{
	"request_acquire":       {Op: OpAcquire, Wait: 30, Lease: 10, Owner: goldenOwner, Text: []byte(goldenKey)},
	"request_acquire_try":   {Op: OpAcquire, Wait: 0, Lease: 255, Owner: 1<<64 - 2, Text: []byte("k")},
	"request_release":       {Op: OpRelease, Owner: 0x0a0a, Token: goldenToken, Text: []byte(goldenKey)},
	"request_keep":          {Op: OpKeep, Lease: 15, Owner: 0x0a0b, Token: goldenToken, Text: []byte(goldenKey)},
	"request_cancel":        {Op: OpCancel, Owner: goldenOwner},
	"request_query":         {Op: OpQuery, Owner: 0x0a0c, Text: []byte(goldenKey)},
	"request_ping":          {Op: OpPing, Owner: 0x0a0d},
	"request_hello":         {Op: OpHello, Version: 1, Owner: 0x0a0e, Text: []byte("web1/billing/42")},
	"request_hello_unnamed": {Op: OpHello, Version: 1, Owner: 1, Text: []byte{}},
}

var goldenReplies = map[string]Reply{
	"reply_acquired":        {Op: OpAcquired, Owner: goldenOwner, Token: goldenToken, WaitedMS: 2570},
	"reply_timeout":         {Op: OpTimeout, Owner: goldenOwner},
	"reply_busy":            {Op: OpBusy, Owner: goldenOwner},
	"reply_released":        {Op: OpReleased, Owner: 0x0a0a},
	"reply_kept":            {Op: OpKept, Owner: 0x0a0b},
	"reply_not_held":        {Op: OpNotHeld, Owner: 0x0a0b},
	"reply_state":           {Op: OpState, Owner: 0x0a0c, Token: goldenToken, Holder: goldenOwner, RemainingMS: 10000, Waiters: 10},
	"reply_state_free":      {Op: OpState, Owner: 0x0a0c},
	"reply_pong":            {Op: OpPong, Owner: 0x0a0d},
	"reply_hello":           {Op: OpHelloOK, Version: 1, Owner: 0x0a0e},
	"reply_moved":           {Op: OpMoved, Owner: goldenOwner, Text: []byte("n2.example:7430")},
	"reply_moved_unknown":   {Op: OpMoved, Owner: goldenOwner, Text: []byte{}},
	"reply_refused":         {Op: OpRefused, Code: CodeBadLease, Owner: goldenOwner, Text: []byte("lease")},
	"reply_refused_session": {Op: OpRefused, Code: CodeUnknownOp, Text: []byte{}},
}

// golden reads one annotated hex file: everything after # is a comment.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata", "golden", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(src)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b
}

func TestGoldenRequests(t *testing.T) {
	seen := map[Op]bool{}
	for name, want := range goldenRequests {
		seen[want.Op] = true
		t.Run(name, func(t *testing.T) {
			file := golden(t, name)
			enc, err := AppendRequest([]byte("before"), &want)
			if err != nil || !bytes.Equal(enc, append([]byte("before"), file...)) {
				t.Errorf("encoded %x, %v\nwant    %x", enc, err, file)
			}
			var got Request
			if err := NewRequestReader(bytes.NewReader(file)).Read(&got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("decoded %+v, %v\nwant    %+v", got, err, want)
			}
		})
	}
	for op, l := range requestLayouts {
		if l.known && !seen[Op(op)] {
			t.Errorf("no golden file for request %q", rune(op))
		}
	}
}

func TestGoldenReplies(t *testing.T) {
	seen := map[Op]bool{}
	for name, want := range goldenReplies {
		seen[want.Op] = true
		t.Run(name, func(t *testing.T) {
			file := golden(t, name)
			enc, err := AppendReply([]byte("before"), &want)
			if err != nil || !bytes.Equal(enc, append([]byte("before"), file...)) {
				t.Errorf("encoded %x, %v\nwant    %x", enc, err, file)
			}
			var got Reply
			if err := NewReplyReader(bytes.NewReader(file)).Read(&got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("decoded %+v, %v\nwant    %+v", got, err, want)
			}
		})
	}
	for op, l := range replyLayouts {
		if l.known && !seen[Op(op)] {
			t.Errorf("no golden file for reply %q", rune(op))
		}
	}
}

// TestGoldenFilesAllUsed keeps a file that nothing checks from looking checked.
func TestGoldenFilesAllUsed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".hex")
		_, req := goldenRequests[name]
		_, rep := goldenReplies[name]
		if !req && !rep {
			t.Errorf("%s is not in the tables of this test", f)
		}
	}
}
