package wire

import (
	"bytes"
	"encoding/binary"
	"io"
)

// bufferLen is the whole memory of a reader, in bytes. It never grows: the
// longest frame fits several times over, and a peer cannot choose a length.
const bufferLen = 4096

// A reader that could not hold one whole frame would wait for ever; this does
// not compile then.
const _ = uint(bufferLen - 2*max(MaxRequestLen, MaxReplyLen))

// maxEmptyReads is how often an io.Reader may return (0, nil) in a row.
const maxEmptyReads = 100

// layout describes the frame of one op.
type layout struct {
	known     bool
	text      bool // text follows the header
	versioned bool // the byte after the op is a version that decides the rest
	header    int  // bytes between the op and the text or 0A
	owner     int  // offset of the owner in the frame
	maxText   int  // longest text in bytes
}

// verdict is what the bytes at the front of the buffer are.
type verdict uint8

const (
	needMore   verdict = iota // the beginning of something
	whole                     // a frame with its 0A in place; content unchecked
	unknownOp                 // no op of this direction
	badVersion                // versioned, and not ours: the rest cannot be understood
	noNewline                 // a fixed-length frame that does not end in 0A
	tooLong                   // more text than allowed and still no 0A
)

// split looks at the front of b. For whole, n is the length of the frame.
func split(b []byte, layouts *[256]layout) (v verdict, n int) {
	if len(b) == 0 {
		return needMore, 0
	}
	l := &layouts[b[0]]
	if !l.known {
		return unknownOp, 0
	}
	if l.versioned && len(b) > 1 && b[1] != Version {
		return badVersion, 0
	}
	// The header is binary: it is skipped by count before 0A means anything.
	if len(b) <= 1+l.header {
		return needMore, 0
	}
	rest := b[1+l.header:]
	if !l.text {
		if rest[0] != newline {
			return noNewline, 0
		}
		return whole, 1 + l.header + 1
	}
	if i := bytes.IndexByte(rest[:min(len(rest), l.maxText+1)], newline); i >= 0 {
		return whole, 1 + l.header + i + 1
	}
	if len(rest) > l.maxText {
		return tooLong, 0
	}
	return needMore, 0
}

// frames cuts a byte stream into frames inside one fixed buffer.
type frames struct {
	src        io.Reader
	layouts    *[256]layout
	buf        []byte
	start, end int   // buf[start:end] is read and not yet handed out
	srcErr     error // came together with bytes; due once they are used up
}

func newFrames(src io.Reader, layouts *[256]layout) frames {
	return frames{src: src, layouts: layouts, buf: make([]byte, bufferLen)}
}

// next returns the next frame, or the verdict on what is there instead, or the
// error of the source. After any verdict but whole the stream is out of step
// and next must not be called again. An error of the source, such as a
// deadline, loses no bytes: a later call goes on where this one stopped.
func (f *frames) next() ([]byte, verdict, error) {
	for {
		switch v, n := split(f.buf[f.start:f.end], f.layouts); v {
		case needMore:
			if err := f.fill(); err != nil {
				return nil, needMore, err
			}
		case whole:
			frame := f.buf[f.start : f.start+n : f.start+n]
			f.start += n
			return frame, whole, nil
		default:
			return f.buf[f.start:f.end], v, nil
		}
	}
}

// fill reads once from the source. It returns nil only if it read something.
func (f *frames) fill() error {
	if f.start > 0 {
		// What is left is less than one frame, so this moves little.
		f.end = copy(f.buf, f.buf[f.start:f.end])
		f.start = 0
	}
	for range maxEmptyReads {
		err := f.srcErr
		f.srcErr = nil
		if err == nil {
			var n int
			n, err = f.src.Read(f.buf[f.end:])
			if n > 0 {
				f.end += n
				f.srcErr = err
				return nil
			}
		}
		if err == io.EOF && f.end > f.start {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// buffered reports whether next will return without reading from the source.
func (f *frames) buffered() bool {
	v, _ := split(f.buf[f.start:f.end], f.layouts)
	return v != needMore
}

// RequestReader decodes requests from a byte stream, on the server's side.
// It allocates only when it is made and for a *Refusal, never holds more than
// 4 KiB, and belongs to one goroutine.
type RequestReader struct {
	frames frames
	fatal  *Refusal // once set, the stream is out of step for good
}

// NewRequestReader returns a reader of the requests in r.
func NewRequestReader(r io.Reader) *RequestReader {
	return &RequestReader{frames: newFrames(r, &requestLayouts)}
}

// Read decodes the next request into req; req.Text is valid until the next
// Read. It returns
//
//   - io.EOF at a clean end between two frames,
//   - io.ErrUnexpectedEOF when the stream ends inside a frame, of which nothing
//     may be executed,
//   - a *Refusal for bad input: req is zero then. If it is not Fatal, the next
//     Read goes on with the following frame; if it is, every later Read returns
//     it again,
//   - any other error of the source as it is; no byte is lost, so that Read may
//     be called again after a deadline.
func (r *RequestReader) Read(req *Request) error {
	if r.fatal != nil {
		*req = Request{}
		return r.fatal
	}
	b, v, err := r.frames.next()
	if err != nil {
		*req = Request{}
		return err
	}
	if v != whole {
		*req = Request{}
		r.fatal = refuseStream(v, b)
		return r.fatal
	}
	req.decode(b)
	if err := req.check(); err != nil {
		*req = Request{}
		return err
	}
	return nil
}

// refuseStream turns a verdict that ends the session into its refusal. The
// owner is echoed only where the frame was understood up to its text.
func refuseStream(v verdict, b []byte) *Refusal {
	switch v {
	case unknownOp:
		return refuse(CodeUnknownOp, 0, reasonUnknownOp)
	case badVersion:
		return refuse(CodeBadVersion, 0, reasonVersion)
	case noNewline:
		return refuse(CodeBadFrame, 0, reasonNoNewline)
	}
	owner := binary.BigEndian.Uint64(b[requestLayouts[b[0]].owner:])
	if Op(b[0]) == OpHello {
		return refuse(CodeKeyTooLong, owner, reasonLabelTooLong)
	}
	return refuse(CodeKeyTooLong, owner, reasonKeyTooLong)
}

// Buffered reports whether a whole frame, or input that will be refused, is
// already here: Read will then return without touching the network. It is
// false once a fatal refusal was returned.
func (r *RequestReader) Buffered() bool { return r.fatal == nil && r.frames.buffered() }

// Partial reports whether bytes of an unfinished frame are here, so that a
// caller can put a deadline on a peer that sends a frame too slowly.
func (r *RequestReader) Partial() bool {
	return r.fatal == nil && r.frames.end > r.frames.start && !r.frames.buffered()
}

// ReplyReader decodes replies from a byte stream, on the client's side. It
// allocates only when it is made, never holds more than 4 KiB, and belongs to
// one goroutine.
type ReplyReader struct {
	frames frames
	fatal  error // once set, the stream is out of step for good
}

// NewReplyReader returns a reader of the replies in r.
func NewReplyReader(r io.Reader) *ReplyReader {
	return &ReplyReader{frames: newFrames(r, &replyLayouts)}
}

// Read decodes the next reply into rep; rep.Text is valid until the next Read.
// Errors are as for RequestReader.Read, except that bytes that are no reply of
// this protocol give an error matching ErrMalformedReply. A peer that sent
// such bytes is not to be trusted with the rest: every later Read returns the
// same error, and the session must be closed.
func (r *ReplyReader) Read(rep *Reply) error {
	if r.fatal != nil {
		*rep = Reply{}
		return r.fatal
	}
	b, v, err := r.frames.next()
	if err != nil {
		*rep = Reply{}
		return err
	}
	switch v {
	case whole:
		rep.decode(b)
		if r.fatal = rep.check(); r.fatal == nil {
			return nil
		}
	case noNewline:
		r.fatal = errReplyNewline
	case tooLong:
		r.fatal = errReplyTextLong
	default: // replies have no versioned layout, so only the op is left
		r.fatal = errReplyOp
	}
	*rep = Reply{}
	return r.fatal
}

// Buffered reports whether a whole reply, or bytes that are none, is already
// here: Read will then return without touching the network. It is false once
// an error matching ErrMalformedReply was returned.
func (r *ReplyReader) Buffered() bool { return r.fatal == nil && r.frames.buffered() }
