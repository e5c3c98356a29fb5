package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc64"
	"io"
	"slices"
	"time"
)

var (
	// ErrSnapshotCorrupt: the bytes are not a whole, unaltered snapshot.
	ErrSnapshotCorrupt = errors.New("corrupt snapshot")
	// ErrSnapshotVersion: the snapshot was written by a newer holdfast.
	ErrSnapshotVersion = errors.New("unknown snapshot version")
)

const snapshotMagic = "hfsnap\x00\x01" // the last byte is the version

var crcTable = crc64.MakeTable(crc64.ECMA)

// Frozen is a consistent view of the table at one index. Taking it costs a
// copy of the list of shards; the table copies a shard before it changes it.
type Frozen struct{ state state }

// Freeze returns a view of the table as it is now.
func (t *Table) Freeze() *Frozen {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &Frozen{state: t.state}
	f.state.shards = slices.Clone(t.state.shards)
	t.state.gen++
	return f
}

// Release lets go of the view's memory. Nothing may be read from it after that,
// and Persist refuses.
func (f *Frozen) Release() { f.state.shards = nil }

// Grants calls yield for every grant, in no particular order, until it returns
// false.
func (f *Frozen) Grants(yield func(Grant) bool) {
	for _, sh := range f.state.shards {
		if sh == nil {
			continue
		}
		for _, g := range sh.grants {
			if !yield(g.Grant) {
				return
			}
		}
	}
}

// Len is the number of grants in the view.
func (f *Frozen) Len() int { return f.state.grants }

// Clock is the view's cluster clock.
func (f *Frozen) Clock() time.Duration { return f.state.clock }

// Epoch is the view's epoch.
func (f *Frozen) Epoch() uint64 { return f.state.epoch }

// Index is the log index of the last entry in the view.
func (f *Frozen) Index() uint64 { return f.state.applied }

// Persist writes the view as a snapshot: magic and version, header, each grant
// behind its length, a zero length, and a checksum over all of it. It may run
// beside Apply.
func (f *Frozen) Persist(w io.Writer) error {
	if f.state.shards == nil {
		return errors.New("write snapshot: the view was released before")
	}
	sum := crc64.New(crcTable)
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)
	buf := append([]byte(snapshotMagic), 0, 0)
	buf = appendHeader(buf[:len(snapshotMagic)+2], &f.state)
	binary.BigEndian.PutUint16(buf[len(snapshotMagic):], uint16(len(buf)-len(snapshotMagic)-2))
	if _, err := out.Write(buf); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	var err error
	body := make([]byte, 0, 4096)
	f.Grants(func(g Grant) bool {
		body = appendGrant(body[:0], &g)
		buf = binary.BigEndian.AppendUint16(buf[:0], uint16(len(body)))
		buf = append(buf, body...)
		_, err = out.Write(buf)
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if _, err := out.Write([]byte{0, 0}); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if _, err := w.Write(binary.BigEndian.AppendUint64(nil, sum.Sum64())); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

func appendHeader(b []byte, s *state) []byte {
	b = binary.BigEndian.AppendUint64(b, s.applied)
	b = binary.BigEndian.AppendUint64(b, s.epoch)
	b = binary.BigEndian.AppendUint64(b, uint64(s.clock))
	b = binary.BigEndian.AppendUint64(b, s.lastToken)
	b = append(b, s.clusterID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(s.grants))
	t := &s.leader
	b = appendText(b, t.NodeID)
	b = appendText(b, t.ClientAddr)
	b = appendText(b, t.AdminAddr)
	b = binary.BigEndian.AppendUint64(b, t.TokenFloor)
	return append(b, t.ClusterID[:]...)
}

func appendGrant(b []byte, g *Grant) []byte {
	b = appendText(b, g.Key)
	b = binary.BigEndian.AppendUint64(b, g.Token)
	b = binary.BigEndian.AppendUint64(b, g.Owner)
	b = append(b, byte(g.Lease/time.Second))
	b = binary.BigEndian.AppendUint64(b, uint64(g.Deadline))
	b = appendText(b, g.Label)
	return appendText(b, g.Addr)
}

// Restore replaces the table's state by a snapshot. On an error the state is
// as it was: nothing is taken over before the checksum has been verified.
func (t *Table) Restore(r io.Reader) error {
	next := NewTable()
	if err := next.load(r); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state, t.heap, t.texts = next.state, next.heap, next.texts
	return nil
}

// summed reads through a checksum.
type summed struct {
	r   *bufio.Reader
	sum hash.Hash64
	buf []byte // the record, valid until the next
}

func (s *summed) record() ([]byte, error) {
	var n [2]byte
	if _, err := io.ReadFull(s.r, n[:]); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(n[:]))
	s.buf = slices.Grow(s.buf[:0], size)
	b := s.buf[:size]
	if _, err := io.ReadFull(s.r, b); err != nil {
		return nil, err
	}
	_, _ = s.sum.Write(n[:])
	_, _ = s.sum.Write(b)
	return b, nil
}

func (t *Table) load(r io.Reader) error {
	in := &summed{r: bufio.NewReaderSize(r, 64<<10), sum: crc64.New(crcTable)}
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(in.r, magic); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshotCorrupt, err)
	}
	_, _ = in.sum.Write(magic)
	if last := len(magic) - 1; string(magic[:last]) != snapshotMagic[:last] {
		return fmt.Errorf("%w: it does not begin as one", ErrSnapshotCorrupt)
	} else if magic[last] != snapshotMagic[last] {
		return fmt.Errorf("%w: %d, this program knows %d", ErrSnapshotVersion, magic[last], snapshotMagic[last])
	}
	head, err := in.record()
	if err != nil {
		return fmt.Errorf("%w: header: %w", ErrSnapshotCorrupt, err)
	}
	want, err := t.loadHeader(head)
	if err != nil {
		return err
	}
	for {
		b, err := in.record()
		if err != nil {
			return fmt.Errorf("%w: after %d grants: %w", ErrSnapshotCorrupt, t.state.grants, err)
		}
		if len(b) == 0 {
			break
		}
		if err := t.loadGrant(b); err != nil {
			return err
		}
	}
	var sum [8]byte
	if _, err := io.ReadFull(in.r, sum[:]); err != nil {
		return fmt.Errorf("%w: checksum: %w", ErrSnapshotCorrupt, err)
	}
	if binary.BigEndian.Uint64(sum[:]) != in.sum.Sum64() || uint64(t.state.grants) != want {
		return fmt.Errorf("%w: checksum or count of grants does not match", ErrSnapshotCorrupt)
	}
	switch _, err := in.r.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: more bytes after its end", ErrSnapshotCorrupt)
	case err != io.EOF:
		return fmt.Errorf("%w: after its end: %w", ErrSnapshotCorrupt, err)
	}
	return nil
}

func (t *Table) loadHeader(b []byte) (grants uint64, err error) {
	d := decoder{b: b, whole: string(b)}
	s := &t.state
	s.applied, s.epoch, s.clock, s.lastToken = d.u64(), d.u64(), time.Duration(d.u64()), d.u64()
	copy(s.clusterID[:], d.take(16, "cluster id"))
	grants = d.u64()
	s.leader = Takeover{NodeID: d.text(), ClientAddr: d.text(), AdminAddr: d.text(), TokenFloor: d.u64()}
	copy(s.leader.ClusterID[:], d.take(16, "cluster id"))
	if d.err != nil || len(d.b) != 0 || s.clock < 0 || s.clock > maxStamp {
		return 0, fmt.Errorf("%w: bad header", ErrSnapshotCorrupt)
	}
	return grants, nil
}

func (t *Table) loadGrant(b []byte) error {
	s := &t.state
	d := decoder{b: b}
	g := &held{Grant: Grant{Key: string(d.bytes()), Token: d.u64(), Owner: d.u64(), Lease: time.Duration(d.u8()) * time.Second,
		Deadline: time.Duration(d.u64())}}
	label, addr := d.bytes(), d.bytes()
	switch {
	case d.err != nil, len(d.b) != 0, g.Key == "", len(g.Key) > MaxKeyLen, g.Lease == 0:
		return fmt.Errorf("%w: bad grant after %d", ErrSnapshotCorrupt, s.grants)
	case g.Token == 0, g.Token > s.lastToken:
		return fmt.Errorf("%w: key %q has token %d, the last given was %d", ErrSnapshotCorrupt, g.Key, g.Token, s.lastToken)
	case g.Deadline < g.Lease, g.Deadline > s.clock+g.Lease:
		return fmt.Errorf("%w: key %q has a deadline that its lease does not explain", ErrSnapshotCorrupt, g.Key)
	}
	sh := shardOf(g.Key)
	if s.shards[sh].get(g.Key) != nil {
		return fmt.Errorf("%w: key %q twice", ErrSnapshotCorrupt, g.Key)
	}
	g.Label, g.Addr = t.internBytes(label), t.internBytes(addr)
	t.put(sh, nil, g)
	return nil
}

// internBytes is intern without a copy of a text that is known.
func (t *Table) internBytes(b []byte) string {
	if have, ok := t.texts[string(b)]; ok {
		return have
	}
	return t.intern(string(b))
}
