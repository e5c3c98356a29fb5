package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc64"
	"reflect"
	"testing"
)

func FuzzDecodeEntry(f *testing.F) {
	for _, g := range golden {
		f.Add(encode(&g.entry))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEntry(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatalf("%v is neither corrupt nor of another version", err)
			}
			return
		}
		again, err := DecodeEntry(encode(e))
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add(persisted(f, filled(f, 3)))
	f.Add([]byte(snapshotMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		table := filled(t, 1)
		before := table.Hash()
		if err := table.Restore(bytes.NewReader(data)); err == nil {
			if other := NewTable(); other.Restore(bytes.NewReader(persisted(t, table))) != nil || other.Hash() != table.Hash() {
				t.Fatal("a restored state does not survive a snapshot")
			}
		} else if table.Hash() != before {
			t.Fatal("a refused snapshot changed the state")
		}
	})
}

// FuzzRestoreSealed puts a valid checksum behind the input, so that what lies
// behind the checksum is tried too. Whatever is accepted must be a whole table.
func FuzzRestoreSealed(f *testing.F) {
	for _, n := range []int{0, 1, 3} {
		b := persisted(f, filled(f, n))
		f.Add(b[:len(b)-8])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = binary.BigEndian.AppendUint64(bytes.Clone(data), crc64.Checksum(data, crcTable))
		table := NewTable()
		err := table.Restore(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrSnapshotCorrupt) && !errors.Is(err, ErrSnapshotVersion) {
				t.Fatalf("%v is neither corrupt nor of another version", err)
			}
			return
		}
		if len(table.Due(1<<63-1, 1<<30, nil)) != table.Len() {
			t.Fatal("the deadlines are not those of the grants")
		}
		other := NewTable()
		if other.Restore(bytes.NewReader(persisted(t, table))) != nil || other.Hash() != table.Hash() {
			t.Fatal("a restored state does not survive a snapshot")
		}
	})
}
