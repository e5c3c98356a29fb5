package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// DecodeEntry decodes one entry. It returns ErrVersion for a format or an
// operation this program does not know and ErrCorrupt for anything that is not
// a whole entry. What it allocates is bounded by the input's size, whatever
// counts and lengths the input claims. The entry does not refer to b.
func DecodeEntry(b []byte) (*Entry, error) {
	e := new(Entry)
	if err := e.decode(b); err != nil {
		return nil, err
	}
	return e, nil
}

// minKeyedOp is the least size of an operation that names a key: kind, length,
// a key of one byte, token.
const minKeyedOp = 1 + 1 + 1 + 8

// decode sets e from b, using the room that e.Ops has. All texts are cut from
// one copy of b: keep a Clone of a text that is to outlive the entry.
func (e *Entry) decode(b []byte) error {
	e.Ops = e.Ops[:0]
	if len(b) == 0 {
		return fmt.Errorf("%w: empty", ErrCorrupt)
	}
	if b[0] != entryFormat {
		return fmt.Errorf("%w: entry format %d, this program knows %d", ErrVersion, b[0], entryFormat)
	}
	d := decoder{b: b[1:], whole: string(b)}
	e.Epoch, e.Stamp = d.u64(), time.Duration(d.u64())
	n := d.uvarint()
	if e.Stamp < 0 || e.Stamp > maxStamp {
		d.fail("stamp")
	}
	if n > uint64(len(d.b)) { // every operation takes at least one byte
		d.fail("count of operations")
	}
	if d.err != nil {
		return d.err
	}
	// Only ticks are shorter than this, and no leader sends many: they grow the
	// slice as they are read, so a false count costs little.
	e.Ops = slices.Grow(e.Ops, min(int(n), len(d.b)/minKeyedOp+1))
	for i := range int(n) {
		var op Op
		d.op(&op)
		if d.err == nil {
			d.err = op.validate(int(n))
		}
		if d.err != nil {
			return fmt.Errorf("operation %d: %w", i, d.err)
		}
		e.Ops = append(e.Ops, op)
	}
	if len(d.b) != 0 {
		return fmt.Errorf("%w: %d bytes after the last operation", ErrCorrupt, len(d.b))
	}
	return nil
}

// decoder reads from b; after the first failure everything reads as zero.
// whole, of which b is the tail, is what text cuts its strings from.
type decoder struct {
	b     []byte
	whole string
	err   error
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

// bytes reads a text as a part of the input.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > MaxTextLen {
		d.fail("text length")
		return nil
	}
	return d.take(int(n), "text")
}

func (d *decoder) text() string {
	n := len(d.bytes())
	if n == 0 {
		return ""
	}
	end := len(d.whole) - len(d.b)
	return d.whole[end-n : end]
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
