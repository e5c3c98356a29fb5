package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Reply is one frame from a server. Which fields count is decided by Op; the
// others are ignored by AppendReply and zero after a Read.
//
//	OpAcquired  Owner Token WaitedMS
//	OpState     Owner Token Holder RemainingMS Waiters
//	OpHelloOK   Version Owner
//	OpMoved     Owner Text(address)
//	OpRefused   Code Owner Text(reason)
//	all others  Owner
type Reply struct {
	Op          Op
	Code        Code
	Version     uint8
	Owner       uint64 // of the request that is answered
	Token       uint64 // the grant; never 0 in OpAcquired, 0 = free in OpState
	Holder      uint64 // owner of the acquire that got the current grant
	WaitedMS    uint32 // ms from reading the acquire to the stamp of its grant, rounded down
	RemainingMS uint32 // ms left of the current lease
	Waiters     uint32 // queued acquires for the key
	Text        []byte // address or reason; after a Read it is valid until the next Read
}

// replyLayouts is indexed by the op byte.
var replyLayouts = [256]layout{
	OpAcquired: {known: true, header: 8 + 8 + 4, owner: 1},
	OpTimeout:  {known: true, header: 8, owner: 1},
	OpBusy:     {known: true, header: 8, owner: 1},
	OpReleased: {known: true, header: 8, owner: 1},
	OpKept:     {known: true, header: 8, owner: 1},
	OpNotHeld:  {known: true, header: 8, owner: 1},
	OpState:    {known: true, header: 8 + 8 + 8 + 4 + 4, owner: 1},
	OpPong:     {known: true, header: 8, owner: 1},
	OpHelloOK:  {known: true, header: 1 + 8, owner: 1 + 1},
	OpMoved:    {known: true, header: 8, owner: 1, text: true, maxText: MaxAddrLen},
	OpRefused:  {known: true, header: 1 + 8, owner: 1 + 1, text: true, maxText: MaxTextLen},
}

// Errors about replies are built once: a peer that sends garbage costs no
// allocation, and the text never carries the peer's bytes.
var (
	errReplyOp       = fmt.Errorf("%w: no such reply op", ErrMalformedReply)
	errReplyNewline  = fmt.Errorf("%w: 0A is missing at the end of the frame", ErrMalformedReply)
	errReplyTextLong = fmt.Errorf("%w: text over its limit", ErrMalformedReply)
	errReplyTextUTF8 = fmt.Errorf("%w: text is not valid UTF-8", ErrMalformedReply)
	errReplyText0A   = fmt.Errorf("%w: text contains 0A", ErrMalformedReply)
	errReplyToken    = fmt.Errorf("%w: acquired with token 0", ErrMalformedReply)
	errReplyVersion  = fmt.Errorf("%w: hello with another version", ErrMalformedReply)
	errReplyCode     = fmt.Errorf("%w: refused with code 0", ErrMalformedReply)
	errReplyCodeNew  = fmt.Errorf("%w: refusal code outside the documented list", ErrMalformedReply)
)

// AppendReply appends the frame of r to dst. A reply that no conforming server
// may send gives an error that matches ErrMalformedReply, and dst as it was.
func AppendReply(dst []byte, r *Reply) ([]byte, error) {
	if err := r.check(); err != nil {
		return dst, err
	}
	if r.Op == OpRefused && !r.Code.Known() {
		return dst, errReplyCodeNew // stricter than check: a client tolerates what we must not send
	}
	dst = append(dst, byte(r.Op))
	switch r.Op {
	case OpHelloOK:
		dst = append(dst, r.Version)
	case OpRefused:
		dst = append(dst, byte(r.Code))
	}
	dst = binary.BigEndian.AppendUint64(dst, r.Owner)
	switch r.Op {
	case OpAcquired:
		dst = binary.BigEndian.AppendUint64(dst, r.Token)
		dst = binary.BigEndian.AppendUint32(dst, r.WaitedMS)
	case OpState:
		dst = binary.BigEndian.AppendUint64(dst, r.Token)
		dst = binary.BigEndian.AppendUint64(dst, r.Holder)
		dst = binary.BigEndian.AppendUint32(dst, r.RemainingMS)
		dst = binary.BigEndian.AppendUint32(dst, r.Waiters)
	case OpMoved, OpRefused:
		dst = append(dst, r.Text...)
	}
	return append(dst, newline), nil
}

// check decides whether a reply's content is allowed, for both directions.
func (r *Reply) check() error {
	l := &replyLayouts[r.Op]
	if !l.known {
		return errReplyOp
	}
	switch {
	case r.Op == OpAcquired && r.Token == 0:
		return errReplyToken // token 0 means "free"; believing it would be a lock without a fence
	case r.Op == OpHelloOK && r.Version != Version:
		return errReplyVersion
	case r.Op == OpRefused && r.Code == 0:
		return errReplyCode
	case !l.text:
		return nil
	case len(r.Text) > l.maxText:
		return errReplyTextLong
	case bytes.IndexByte(r.Text, newline) >= 0:
		return errReplyText0A
	case !utf8.Valid(r.Text):
		return errReplyTextUTF8
	}
	return nil
}

// decode fills r from one whole frame of a known op. Text aliases frame.
func (r *Reply) decode(frame []byte) {
	l := &replyLayouts[frame[0]]
	*r = Reply{Op: Op(frame[0]), Owner: binary.BigEndian.Uint64(frame[l.owner:])}
	switch r.Op {
	case OpAcquired:
		r.Token = binary.BigEndian.Uint64(frame[9:])
		r.WaitedMS = binary.BigEndian.Uint32(frame[17:])
	case OpState:
		r.Token = binary.BigEndian.Uint64(frame[9:])
		r.Holder = binary.BigEndian.Uint64(frame[17:])
		r.RemainingMS = binary.BigEndian.Uint32(frame[25:])
		r.Waiters = binary.BigEndian.Uint32(frame[29:])
	case OpHelloOK:
		r.Version = frame[1]
	case OpRefused:
		r.Code = Code(frame[1])
	}
	if l.text {
		r.Text = frame[1+l.header : len(frame)-1]
	}
}
