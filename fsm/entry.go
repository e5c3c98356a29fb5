package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Kind says what an operation does. The numbers are part of the persistent
// format: a kind is never renumbered and never changes its meaning.
type Kind uint8

// The operations of a log entry.
const (
	KindTakeover Kind = iota + 1 // a node begins to lead
	KindTick                     // only the stamp matters
	KindGrant
	KindRelease
	KindKeep
	KindExpire
)

// Limits of an entry's content, in bytes and in lease seconds.
const (
	MaxKeyLen   = 512
	MaxTextLen  = 1024
	MaxLease    = 255 * time.Second
	entryFormat = 1
	// maxStamp, 146 years, leaves room to add a lease without overflow.
	maxStamp = time.Duration(1 << 62)
)

var (
	// ErrVersion: the entry or snapshot was written by a newer holdfast.
	ErrVersion = errors.New("unknown format version")
	// ErrCorrupt: the bytes are not an entry.
	ErrCorrupt = errors.New("corrupt log entry")
)

// Takeover is what a node says of itself when it begins to lead.
type Takeover struct {
	NodeID     string
	ClientAddr string
	AdminAddr  string
	TokenFloor uint64   // tokens granted from now on are above it
	ClusterID  [16]byte // adopted only if the table has no id yet
}

// Op is one operation. Which fields matter depends on Kind.
type Op struct {
	Kind        Kind
	Key         string        // all but Takeover and Tick; 1 to 512 bytes
	Token       uint64        // Release, Keep, Expire
	Owner       uint64        // Grant: the acquire's correlation number
	Lease       time.Duration // Grant, Keep: whole seconds, 1 to 255
	Label, Addr string        // Grant: who asked, for operators
	Takeover    *Takeover     // Takeover, which is alone in its entry
}

// Entry is one log entry: a batch of operations executed at one instant of the
// cluster clock. Epoch is the log index of the Takeover of the leader that
// wrote it; a Takeover entry has epoch 0.
type Entry struct {
	Epoch uint64
	Stamp time.Duration
	Ops   []Op
}

// AppendEntry appends the encoding of e to dst. It refuses an entry that
// Apply would not understand, and then returns dst as it was.
func AppendEntry(dst []byte, e *Entry) ([]byte, error) {
	if e.Stamp < 0 || e.Stamp > maxStamp {
		return dst, fmt.Errorf("%w: stamp %d ns, must be 0 to %d", ErrCorrupt, e.Stamp, maxStamp)
	}
	b := append(dst, entryFormat)
	b = binary.BigEndian.AppendUint64(b, e.Epoch)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Stamp))
	b = binary.AppendUvarint(b, uint64(len(e.Ops)))
	for i := range e.Ops {
		op := &e.Ops[i]
		if err := op.validate(len(e.Ops)); err != nil {
			return dst, fmt.Errorf("operation %d: %w", i, err)
		}
		b = op.append(b)
	}
	return b, nil
}

func (op *Op) validate(n int) error {
	switch op.Kind {
	case KindTick:
		return nil
	case KindTakeover:
		if n != 1 || op.Takeover == nil {
			return fmt.Errorf("%w: a takeover must be alone in its entry", ErrCorrupt)
		}
		t := op.Takeover
		if len(t.NodeID) > MaxTextLen || len(t.ClientAddr) > MaxTextLen || len(t.AdminAddr) > MaxTextLen {
			return fmt.Errorf("%w: a takeover's text is longer than %d bytes", ErrCorrupt, MaxTextLen)
		}
		return nil
	case KindGrant, KindKeep, KindRelease, KindExpire:
	default:
		return fmt.Errorf("%w: operation kind %d", ErrVersion, op.Kind)
	}
	if len(op.Key) == 0 || len(op.Key) > MaxKeyLen {
		return fmt.Errorf("%w: key of %d bytes", ErrCorrupt, len(op.Key))
	}
	if op.Kind == KindGrant || op.Kind == KindKeep {
		if op.Lease < time.Second || op.Lease > MaxLease || op.Lease%time.Second != 0 {
			return fmt.Errorf("%w: lease of %s", ErrCorrupt, op.Lease)
		}
	}
	if len(op.Label) > MaxTextLen || len(op.Addr) > MaxTextLen {
		return fmt.Errorf("%w: holder text longer than %d bytes", ErrCorrupt, MaxTextLen)
	}
	return nil
}

func (op *Op) append(b []byte) []byte {
	b = append(b, byte(op.Kind))
	switch op.Kind {
	case KindTakeover:
		t := op.Takeover
		b = appendText(b, t.NodeID)
		b = appendText(b, t.ClientAddr)
		b = appendText(b, t.AdminAddr)
		b = binary.BigEndian.AppendUint64(b, t.TokenFloor)
		b = append(b, t.ClusterID[:]...)
	case KindGrant:
		b = appendText(b, op.Key)
		b = append(b, byte(op.Lease/time.Second))
		b = binary.BigEndian.AppendUint64(b, op.Owner)
		b = appendText(b, op.Label)
		b = appendText(b, op.Addr)
	case KindKeep:
		b = appendText(b, op.Key)
		b = append(b, byte(op.Lease/time.Second))
		b = binary.BigEndian.AppendUint64(b, op.Token)
	case KindRelease, KindExpire:
		b = appendText(b, op.Key)
		b = binary.BigEndian.AppendUint64(b, op.Token)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
