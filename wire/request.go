package wire

import "encoding/binary"

// Request is one frame from a client. Which fields count is decided by Op;
// the others are ignored by AppendRequest and zero after a Read.
//
//	OpAcquire  Wait Lease Owner Text(key)
//	OpRelease  Owner Token Text(key)
//	OpKeep     Lease Owner Token Text(key)
//	OpCancel   Owner
//	OpQuery    Owner Text(key)
//	OpPing     Owner
//	OpHello    Version Owner Text(label)
type Request struct {
	Op      Op
	Wait    uint8  // seconds to queue, 0..255; 0 is one attempt that never queues
	Lease   uint8  // seconds the grant is protected, 1..255
	Version uint8  // protocol version of a hello
	Owner   uint64 // correlates the reply; no authority over anything
	Token   uint64 // the exact grant that is meant
	Text    []byte // key or label; after a Read it is valid until the next Read
}

// requestLayouts is indexed by the op byte.
var requestLayouts = [256]layout{
	OpAcquire: {known: true, header: 1 + 1 + 8, owner: 1 + 1 + 1, text: true, maxText: MaxKeyLen},
	OpRelease: {known: true, header: 8 + 8, owner: 1, text: true, maxText: MaxKeyLen},
	OpKeep:    {known: true, header: 1 + 8 + 8, owner: 1 + 1, text: true, maxText: MaxKeyLen},
	OpCancel:  {known: true, header: 8, owner: 1},
	OpQuery:   {known: true, header: 8, owner: 1, text: true, maxText: MaxKeyLen},
	OpPing:    {known: true, header: 8, owner: 1},
	OpHello:   {known: true, header: 1 + 8, owner: 1 + 1, text: true, maxText: MaxLabelLen, versioned: true},
}

// AppendRequest appends the frame of r to dst. What a server would refuse is
// refused here with a *Refusal, and dst is returned as it was.
func AppendRequest(dst []byte, r *Request) ([]byte, error) {
	if err := r.check(); err != nil {
		return dst, err
	}
	dst = append(dst, byte(r.Op))
	switch r.Op {
	case OpAcquire:
		dst = append(dst, r.Wait, r.Lease)
		dst = binary.BigEndian.AppendUint64(dst, r.Owner)
	case OpRelease:
		dst = binary.BigEndian.AppendUint64(dst, r.Owner)
		dst = binary.BigEndian.AppendUint64(dst, r.Token)
	case OpKeep:
		dst = append(dst, r.Lease)
		dst = binary.BigEndian.AppendUint64(dst, r.Owner)
		dst = binary.BigEndian.AppendUint64(dst, r.Token)
	case OpHello:
		dst = append(dst, r.Version)
		dst = binary.BigEndian.AppendUint64(dst, r.Owner)
	default: // OpCancel, OpQuery, OpPing: check let nothing else through
		dst = binary.BigEndian.AppendUint64(dst, r.Owner)
	}
	if requestLayouts[r.Op].text {
		dst = append(dst, r.Text...)
	}
	return append(dst, newline), nil
}

// check is the one place that decides whether a request's content is allowed;
// the encoder and the decoder both ask it, so they cannot disagree.
func (r *Request) check() error {
	var code Code
	var reason string
	switch r.Op {
	case OpAcquire, OpKeep:
		if code, reason = checkKey(r.Text); code == 0 && r.Lease == 0 {
			code, reason = CodeBadLease, reasonLease
		}
	case OpRelease, OpQuery:
		code, reason = checkKey(r.Text)
	case OpHello:
		if r.Version != Version {
			return refuse(CodeBadVersion, 0, reasonVersion)
		}
		code, reason = checkLabel(r.Text)
	case OpCancel, OpPing:
	default:
		return refuse(CodeUnknownOp, 0, reasonUnknownOp)
	}
	if code != 0 {
		return refuse(code, r.Owner, reason)
	}
	return nil
}

// decode fills r from one whole frame of a known op. Text aliases frame.
func (r *Request) decode(frame []byte) {
	l := &requestLayouts[frame[0]]
	*r = Request{Op: Op(frame[0]), Owner: binary.BigEndian.Uint64(frame[l.owner:])}
	switch r.Op {
	case OpAcquire:
		r.Wait, r.Lease = frame[1], frame[2]
	case OpRelease:
		r.Token = binary.BigEndian.Uint64(frame[9:])
	case OpKeep:
		r.Lease = frame[1]
		r.Token = binary.BigEndian.Uint64(frame[10:])
	case OpHello:
		r.Version = frame[1]
	}
	if l.text {
		r.Text = frame[1+l.header : len(frame)-1]
	}
}
