package fsm

import (
	"encoding/binary"
	"fmt"
	"time"
)

// DecodeEntry decodes one entry. It returns ErrVersion for a format or an
// operation this program does not know and ErrCorrupt for anything that is not
// a whole entry. It allocates no more than the input's size allows.
func DecodeEntry(b []byte) (*Entry, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: empty", ErrCorrupt)
	}
	if b[0] != entryFormat {
		return nil, fmt.Errorf("%w: entry format %d, this program knows %d", ErrVersion, b[0], entryFormat)
	}
	d := decoder{b: b[1:]}
	e := &Entry{Epoch: d.u64(), Stamp: time.Duration(d.u64())}
	n := d.uvarint()
	// Every operation takes at least one byte, so this bounds the allocation.
	if n > uint64(len(d.b)) {
		d.fail("count of operations")
	}
	if e.Stamp < 0 {
		d.fail("stamp")
	}
	if d.err != nil {
		return nil, d.err
	}
	e.Ops = make([]Op, n)
	for i := range e.Ops {
		d.op(&e.Ops[i])
		if d.err == nil {
			d.err = e.Ops[i].validate(int(n))
		}
		if d.err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, d.err)
		}
	}
	if len(d.b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes after the last operation", ErrCorrupt, len(d.b))
	}
	return e, nil
}

// decoder reads from b; after the first failure everything reads as zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: bad %s", ErrCorrupt, what)
	}
	d.b = nil
}

func (d *decoder) take(n int, what string) []byte {
	if n > len(d.b) {
		d.fail(what)
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) u8() byte {
	if p := d.take(1, "byte"); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if p := d.take(8, "number"); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("length")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string {
	n := d.uvarint()
	if n > MaxTextLen {
		d.fail("text length")
		return ""
	}
	return string(d.take(int(n), "text"))
}

func (d *decoder) op(op *Op) {
	op.Kind = Kind(d.u8())
	switch op.Kind {
	case KindTakeover:
		t := &Takeover{NodeID: d.text(), ClientAddr: d.text(), AdminAddr: d.text(), TokenFloor: d.u64()}
		copy(t.ClusterID[:], d.take(len(t.ClusterID), "cluster id"))
		op.Takeover = t
	case KindGrant:
		op.Key = d.text()
		op.Lease = time.Duration(d.u8()) * time.Second
		op.Owner = d.u64()
		op.Label, op.Addr = d.text(), d.text()
	case KindKeep:
		op.Key = d.text()
		op.Lease = time.Duration(d.u8()) * time.Second
		op.Token = d.u64()
	case KindRelease, KindExpire:
		op.Key = d.text()
		op.Token = d.u64()
	}
}
