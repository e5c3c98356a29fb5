package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

const sealLen = 4

var errSeal = errors.New("checksum does not match: the disk returned other bytes than were written; remove the data directory and let the node rejoin")

// sealedStore keeps a checksum with everything in the bolt file. bbolt has none
// of its own beyond its meta pages: a flipped bit would come back as another
// term, vote or grant.
type sealedStore struct{ b *raftboltdb.BoltStore }

func (s *sealedStore) FirstIndex() (uint64, error) { return s.b.FirstIndex() }
func (s *sealedStore) LastIndex() (uint64, error)  { return s.b.LastIndex() }
func (s *sealedStore) DeleteRange(lo, hi uint64) error {
	return s.b.DeleteRange(lo, hi)
}

func logSum(l *raft.Log, data []byte) uint32 {
	var h [17]byte
	binary.BigEndian.PutUint64(h[0:], l.Index)
	binary.BigEndian.PutUint64(h[8:], l.Term)
	h[16] = byte(l.Type)
	return crc32.Update(crc32.Checksum(h[:], crcTable), crcTable, data)
}

// StoreLogs stores copies with the checksum behind the data: raft goes on using
// the entries it passed.
func (s *sealedStore) StoreLogs(logs []*raft.Log) error {
	sealed := make([]raft.Log, len(logs))
	ptrs := make([]*raft.Log, len(logs))
	size := 0
	for _, l := range logs {
		size += len(l.Data) + sealLen
	}
	buf := make([]byte, 0, size)
	for i, l := range logs {
		sealed[i] = *l
		start := len(buf)
		buf = append(buf, l.Data...)
		buf = binary.BigEndian.AppendUint32(buf, logSum(l, l.Data))
		sealed[i].Data = buf[start:len(buf):len(buf)]
		ptrs[i] = &sealed[i]
	}
	return s.b.StoreLogs(ptrs)
}

// GetLog returns raft.ErrLogNotFound for a missing entry and an error that names
// the index for one that was altered.
func (s *sealedStore) GetLog(index uint64, out *raft.Log) error {
	var l raft.Log
	if err := s.b.GetLog(index, &l); err != nil {
		if errors.Is(err, raft.ErrLogNotFound) {
			return raft.ErrLogNotFound
		}
		return fmt.Errorf("log entry %d: %w", index, err)
	}
	n := len(l.Data) - sealLen
	if n < 0 || l.Index != index || binary.BigEndian.Uint32(l.Data[n:]) != logSum(&l, l.Data[:n]) {
		return fmt.Errorf("log entry %d: %w", index, errSeal)
	}
	l.Data = l.Data[:n:n]
	if n == 0 {
		l.Data = nil
	}
	*out = l
	return nil
}

func stableSum(k, v []byte) uint32 {
	return crc32.Update(crc32.Checksum(k, crcTable), crcTable, v)
}

func (s *sealedStore) Set(k, v []byte) error {
	return s.b.Set(k, binary.BigEndian.AppendUint32(append([]byte(nil), v...), stableSum(k, v)))
}

// Get returns raftboltdb.ErrKeyNotFound for a missing key.
func (s *sealedStore) Get(k []byte) ([]byte, error) {
	v, err := s.b.Get(k)
	if err != nil {
		return nil, err
	}
	n := len(v) - sealLen
	if n < 0 || binary.BigEndian.Uint32(v[n:]) != stableSum(k, v[:n]) {
		return nil, fmt.Errorf("%s: %w", k, errSeal)
	}
	return v[:n:n], nil
}

func (s *sealedStore) SetUint64(k []byte, v uint64) error {
	return s.Set(k, binary.BigEndian.AppendUint64(nil, v))
}

func (s *sealedStore) GetUint64(k []byte) (uint64, error) {
	v, err := s.Get(k)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%s: %w", k, errSeal)
	}
	return binary.BigEndian.Uint64(v), nil
}
