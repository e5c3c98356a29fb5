package wire

import (
	"errors"
	"strings"
	"testing"
)

// TestValidKey: a caller with a string learns what a server would answer.
func TestValidKey(t *testing.T) {
	for _, tc := range []struct {
		key  string
		code Code // 0 = valid
	}{
		{"a", 0},
		{"a/b c\x00\r", 0},
		{"ключ/鍵", 0},
		{strings.Repeat("k", MaxKeyLen), 0},
		{"", CodeBadKey},
		{"a\nb", CodeBadKey},
		{"\n", CodeBadKey},
		{"\xff", CodeBadKey},
		{strings.Repeat("k", MaxKeyLen+1), CodeKeyTooLong},
		{strings.Repeat("\xff", 1<<20), CodeKeyTooLong},
	} {
		for _, err := range []error{ValidKey(tc.key), ValidKeyBytes([]byte(tc.key))} {
			var refusal *Refusal
			if errors.As(err, &refusal) != (tc.code != 0) || refusal != nil && (refusal.Code != tc.code || refusal.Fatal != tc.code.Fatal()) {
				t.Errorf("%.20q: %v", tc.key, err)
			}
		}
	}
}

// TestAppendRefuses: the encoder turns down what the peer would, and says the
// same about it; dst stays as it was.
func TestAppendRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		req  Request
		want Refusal
	}{
		"no op":        {Request{Owner: 7}, Refusal{Code: CodeUnknownOp, Fatal: true}},
		"reply op":     {Request{Op: OpTimeout, Owner: 7}, Refusal{Code: CodeUnknownOp, Fatal: true}},
		"empty key":    {Request{Op: OpQuery, Owner: 7}, Refusal{Code: CodeBadKey, Owner: 7}},
		"0A in key":    {Request{Op: OpQuery, Owner: 7, Text: []byte("a\nP")}, Refusal{Code: CodeBadKey, Owner: 7}},
		"lease 0":      {Request{Op: OpKeep, Owner: 7, Text: []byte("k")}, Refusal{Code: CodeBadLease, Owner: 7}},
		"long key":     {Request{Op: OpRelease, Owner: 7, Text: make([]byte, MaxKeyLen+1)}, Refusal{CodeKeyTooLong, 7, "", true}},
		"0A in label":  {Request{Op: OpHello, Version: 1, Owner: 7, Text: []byte("\n")}, Refusal{Code: CodeBadText, Owner: 7}},
		"long label":   {Request{Op: OpHello, Version: 1, Owner: 7, Text: make([]byte, MaxLabelLen+1)}, Refusal{CodeKeyTooLong, 7, "", true}},
		"hello, no vn": {Request{Op: OpHello, Owner: 7}, Refusal{Code: CodeBadVersion, Fatal: true}},
	} {
		b, err := AppendRequest([]byte("dst"), &tc.req)
		var refusal *Refusal
		if !errors.As(err, &refusal) || string(b) != "dst" {
			t.Errorf("%s: %q, %v", name, b, err)
			continue
		}
		tc.want.Reason = refusal.Reason
		if *refusal != tc.want || !strings.Contains(err.Error(), refusal.Code.String()) {
			t.Errorf("%s: %+v, want %+v", name, *refusal, tc.want)
		}
	}
	for name, rep := range map[string]Reply{
		"no op":         {},
		"request op":    {Op: OpAcquire + 2}, // 'C', no reply
		"token 0":       {Op: OpAcquired, Owner: 7},
		"version 0":     {Op: OpHelloOK, Owner: 7},
		"code 0":        {Op: OpRefused},
		"unlisted code": {Op: OpRefused, Code: 10},
		"long address":  {Op: OpMoved, Text: make([]byte, MaxAddrLen+1)},
		"0A in text":    {Op: OpRefused, Code: CodeBadKey, Text: []byte("a\nA")},
		"bad UTF-8":     {Op: OpMoved, Text: []byte{0xff}},
	} {
		if b, err := AppendReply([]byte("dst"), &rep); !errors.Is(err, ErrMalformedReply) || string(b) != "dst" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestCodeString(t *testing.T) {
	if s := Code(0).String() + ", " + Code(200).String(); s != "code 0, code 200" {
		t.Error(s)
	}
}
