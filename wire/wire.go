// Package wire is holdfast's client protocol, version 1: frames, their codec
// and nothing else. It knows no sockets, locks or clocks; both the server and
// the official client stand on it. PROTOCOL.md in this folder is the
// specification, and a test walks its tables against this code.
//
// A frame is one op byte, a fixed binary header whose length the op decides,
// UTF-8 text for some ops, and a final 0A. The header is binary and may hold
// 0A itself, so it is always consumed by count before a newline is looked for.
// Requests and replies have separate letter spaces.
package wire

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf8"
)

// Limits of protocol version 1. Lengths are in bytes and do not count the
// final 0A.
const (
	Version     = 1   // the only version a hello may name
	MaxKeyLen   = 512 // longest key; the shortest is 1
	MaxLabelLen = 255 // longest label of a hello; it may be empty
	MaxAddrLen  = 512 // longest address of a moved reply; it may be empty
	MaxTextLen  = 512 // longest text of a refused reply; it may be empty
)

// MaxRequestLen and MaxReplyLen bound a whole frame in bytes, 0A included.
const (
	MaxRequestLen = 1 + 1 + 8 + 8 + MaxKeyLen + 1 // a keep with the longest key
	MaxReplyLen   = 1 + 1 + 8 + MaxTextLen + 1    // a refused with the longest text
)

// newline ends every frame.
const newline = byte('\n')

// Op is the first byte of a frame. The same letter means different things in a
// request and in a reply.
type Op byte

// Request ops, client to server.
const (
	OpAcquire Op = 'A'
	OpRelease Op = 'R'
	OpKeep    Op = 'K'
	OpCancel  Op = 'C'
	OpQuery   Op = 'Q'
	OpPing    Op = 'P'
	OpHello   Op = 'H'
)

// Reply ops, server to client.
const (
	OpAcquired Op = 'A'
	OpTimeout  Op = 'T'
	OpBusy     Op = 'B'
	OpReleased Op = 'R'
	OpKept     Op = 'K'
	OpNotHeld  Op = 'N'
	OpState    Op = 'S'
	OpPong     Op = 'P'
	OpHelloOK  Op = 'H'
	OpMoved    Op = 'M'
	OpRefused  Op = 'E'
)

// Code says why a request was refused. The list is closed for version 1: a
// server sends no other code. A client takes a code it does not know for a
// plain refusal, because the meaning of E does not depend on its code.
type Code uint8

// The refusal codes. PROTOCOL.md says when each is sent.
const (
	CodeBadKey     Code = 1 // empty key or invalid UTF-8
	CodeBadLease   Code = 2 // lease of zero
	CodeBadText    Code = 3 // the label of a hello is not valid UTF-8
	CodeKeyTooLong Code = 4 // key or label over its limit before any 0A
	CodeUnknownOp  Code = 5 // no such request
	CodeBadVersion Code = 6 // a hello with a version that is not spoken here
	CodeBadFrame   Code = 7 // no 0A where a fixed-length frame must end
	CodeLateHello  Code = 8 // a hello that is not the session's first frame
	CodeForbidden  Code = 9 // well formed, but this session may not do that
)

// codeNames is indexed by Code; a code without a name is not in the list.
var codeNames = [...]string{
	CodeBadKey:     "bad key",
	CodeBadLease:   "bad lease",
	CodeBadText:    "bad text",
	CodeKeyTooLong: "key too long",
	CodeUnknownOp:  "unknown op",
	CodeBadVersion: "bad version",
	CodeBadFrame:   "bad frame",
	CodeLateHello:  "late hello",
	CodeForbidden:  "forbidden",
}

// Known reports whether c is in the closed list of version 1.
func (c Code) Known() bool { return int(c) < len(codeNames) && codeNames[c] != "" }

// Fatal reports whether the server closes the session after a refusal with
// this code: it does not know where the next frame begins, or cannot trust the
// peer to know what a session is.
func (c Code) Fatal() bool { return c >= CodeKeyTooLong && c <= CodeLateHello }

// String returns the name PROTOCOL.md gives the code.
func (c Code) String() string {
	if c.Known() {
		return codeNames[c]
	}
	return "code " + strconv.Itoa(int(c))
}

// Refusal is the error for a request that has a definitive answer, E: it was
// not executed and never will be. Sent as a reply it becomes OpRefused with
// the same Code and Owner, and Reason as its text.
type Refusal struct {
	Code   Code
	Owner  uint64 // of the refused request; 0 where the frame itself was not understood
	Reason string // one short English phrase for people, at most MaxTextLen bytes
	Fatal  bool   // the session must be closed after the reply
}

// Error implements error.
func (r *Refusal) Error() string {
	return "wire: request refused: " + r.Code.String() + ": " + r.Reason
}

// refuse builds a Refusal whose Fatal follows from its code.
func refuse(code Code, owner uint64, reason string) *Refusal {
	return &Refusal{Code: code, Owner: owner, Reason: reason, Fatal: code.Fatal()}
}

// ErrMalformedReply is matched (errors.Is) by every error that AppendReply
// returns and by those that ReplyReader.Read returns for bytes that are no
// reply of this protocol.
var ErrMalformedReply = errors.New("wire: malformed reply")

// ValidKey returns nil if key may be sent, else a *Refusal (owner 0) that says
// what a server would answer.
func ValidKey(key string) error {
	if len(key) > MaxKeyLen {
		return refuse(CodeKeyTooLong, 0, reasonKeyTooLong)
	}
	var b [MaxKeyLen]byte // on the stack, so that checking a string costs no allocation
	return ValidKeyBytes(b[:copy(b[:], key)])
}

// ValidKeyBytes is ValidKey for a key in a byte slice.
func ValidKeyBytes(key []byte) error {
	if code, reason := checkKey(key); code != 0 {
		return refuse(code, 0, reason)
	}
	return nil
}

// Reasons are constants so that they cannot carry a peer's bytes back into a
// terminal or a log.
const (
	reasonKeyEmpty     = "the key is empty"
	reasonKeyTooLong   = "the key is longer than 512 bytes"
	reasonKeyUTF8      = "the key is not valid UTF-8"
	reasonKeyNewline   = "the key contains 0A"
	reasonLease        = "the lease must be 1 to 255 seconds"
	reasonLabelTooLong = "the label is longer than 255 bytes"
	reasonLabelUTF8    = "the label is not valid UTF-8"
	reasonLabelNewline = "the label contains 0A"
	reasonUnknownOp    = "no such request op"
	reasonVersion      = "only protocol version 1 is spoken here"
	reasonNoNewline    = "0A is missing at the end of the frame"
)

// checkKey returns code 0 for a valid key.
func checkKey(key []byte) (Code, string) {
	switch {
	case len(key) == 0:
		return CodeBadKey, reasonKeyEmpty
	case len(key) > MaxKeyLen:
		return CodeKeyTooLong, reasonKeyTooLong
	case bytes.IndexByte(key, newline) >= 0:
		return CodeBadKey, reasonKeyNewline
	case !utf8.Valid(key):
		return CodeBadKey, reasonKeyUTF8
	}
	return 0, ""
}

// checkLabel returns code 0 for a valid label of a hello.
func checkLabel(label []byte) (Code, string) {
	switch {
	case len(label) > MaxLabelLen:
		return CodeKeyTooLong, reasonLabelTooLong
	case bytes.IndexByte(label, newline) >= 0:
		return CodeBadText, reasonLabelNewline
	case !utf8.Valid(label):
		return CodeBadText, reasonLabelUTF8
	}
	return 0, ""
}
