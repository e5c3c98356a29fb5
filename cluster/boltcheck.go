package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// bbolt panics on a damaged file, partly on a goroutine of its own where nobody
// can recover, and a truncated one faults in the memory map. So the whole page
// tree is checked with plain reads before bbolt opens the file.

const (
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	boltBranch   = 0x01
	boltLeaf     = 0x02
	boltHeader   = 16 // id:8 flags:2 count:2 overflow:4
	boltElem     = 16 // branch: pos:4 ksize:4 pgid:8; leaf: flags:4 pos:4 ksize:4 vsize:4
	boltMetaLen  = 64
	boltBucket   = 0x01
	boltMaxDepth = 32
)

var bo = binary.NativeEndian // bbolt writes the machine's own order

type boltMeta struct {
	pageSize   uint32
	root, high uint64 // root page; first page id never allocated
	tx         uint64
}

type boltFile struct {
	f       *os.File
	meta    boltMeta
	seen    []bool
	buckets map[string]bool // names at the root
}

// checkBolt reads every page of the store that is in use. The error says what is
// wrong, not where the file is or what to do.
func checkBolt(path string, wantBuckets ...string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() == 0 {
		return errors.New("it is empty")
	}
	c := &boltFile{f: f, buckets: map[string]bool{}}
	if c.meta, err = readBoltMeta(f, st.Size()); err != nil {
		return err
	}
	pages := uint64(st.Size()) / uint64(c.meta.pageSize)
	if c.meta.high > pages {
		return fmt.Errorf("it is truncated: it should have at least %d pages of %d bytes but has %d", c.meta.high, c.meta.pageSize, pages)
	}
	c.seen = make([]bool, c.meta.high)
	if err := c.walk(c.meta.root, nil, nil, 0, true); err != nil {
		return err
	}
	for _, b := range wantBuckets {
		if !c.buckets[b] {
			return fmt.Errorf("its bucket %q is missing", b)
		}
	}
	return nil
}

// readBoltMeta returns the newer of the valid meta pages: a power cut may have
// torn the one that was being written.
func readBoltMeta(f *os.File, size int64) (best boltMeta, err error) {
	found := false
	try := func(off int64) {
		buf := make([]byte, boltHeader+boltMetaLen)
		if _, err := f.ReadAt(buf, off); err != nil {
			return
		}
		m := buf[boltHeader:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:56])
		if bo.Uint32(m) != boltMagic || bo.Uint32(m[4:]) != boltVersion || bo.Uint64(m[56:]) != sum.Sum64() {
			return
		}
		meta := boltMeta{pageSize: bo.Uint32(m[8:]), root: bo.Uint64(m[16:]), high: bo.Uint64(m[40:]), tx: bo.Uint64(m[48:])}
		if meta.pageSize >= 512 && meta.pageSize <= 16<<20 && (!found || meta.tx > best.tx) {
			best, found = meta, true
		}
	}
	try(0)
	if found {
		try(int64(best.pageSize))
	}
	for off := int64(1024); !found && off <= 16<<20 && off < size; off *= 2 {
		try(off)
	}
	if !found {
		return best, errors.New("it is no bbolt file or both its meta pages are damaged")
	}
	return best, nil
}

// walk checks the subtree of one page: lo <= its keys < hi (nil = no bound).
func (c *boltFile) walk(pg uint64, lo, hi []byte, depth int, root bool) error {
	if depth > boltMaxDepth {
		return fmt.Errorf("page %d: the tree is too deep", pg)
	}
	page, err := c.load(pg)
	if err != nil {
		return err
	}
	return c.checkPage(pg, page, lo, hi, depth, root)
}

// load reads a page with its overflow and claims its ids: each is used once.
func (c *boltFile) load(pg uint64) ([]byte, error) {
	size := uint64(c.meta.pageSize)
	if pg < 2 || pg >= c.meta.high {
		return nil, fmt.Errorf("page %d is out of range", pg)
	}
	var head [boltHeader]byte
	if _, err := c.f.ReadAt(head[:], int64(pg*size)); err != nil {
		return nil, fmt.Errorf("page %d: %w", pg, err)
	}
	over := uint64(bo.Uint32(head[12:]))
	if id := bo.Uint64(head[:]); id != pg {
		return nil, fmt.Errorf("page %d says that it is page %d", pg, id)
	}
	if over >= c.meta.high-pg {
		return nil, fmt.Errorf("page %d runs over the end", pg)
	}
	for i := pg; i <= pg+over; i++ {
		if c.seen[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	page := make([]byte, (over+1)*size)
	if _, err := c.f.ReadAt(page, int64(pg*size)); err != nil {
		return nil, fmt.Errorf("page %d: %w", pg, err)
	}
	return page, nil
}

func (c *boltFile) checkPage(pg uint64, page, lo, hi []byte, depth int, root bool) error {
	flags, count := bo.Uint16(page[8:]), int(bo.Uint16(page[10:]))
	if flags != boltBranch && flags != boltLeaf {
		return fmt.Errorf("page %d has unknown type %#x", pg, flags)
	}
	if boltHeader+count*boltElem > len(page) {
		return fmt.Errorf("page %d has too many elements (%d)", pg, count)
	}
	if flags == boltBranch && count == 0 {
		return fmt.Errorf("page %d is an empty branch", pg)
	}
	prev := lo
	for i := range count {
		key, rest, err := boltElement(page, i, flags)
		if err != nil {
			return fmt.Errorf("page %d element %d: %w", pg, i, err)
		}
		if cmp := bytes.Compare(prev, key); prev != nil && (cmp > 0 || i > 0 && cmp == 0) || hi != nil && bytes.Compare(key, hi) >= 0 {
			return fmt.Errorf("page %d element %d: its key is out of order", pg, i)
		}
		prev = key
		off := boltHeader + i*boltElem
		switch {
		case flags == boltBranch:
			next := hi
			if i+1 < count {
				if next, _, err = boltElement(page, i+1, flags); err != nil {
					return fmt.Errorf("page %d element %d: %w", pg, i+1, err)
				}
			}
			if err := c.walk(bo.Uint64(page[off+8:]), key, next, depth+1, root); err != nil {
				return err
			}
		case bo.Uint32(page[off:])&boltBucket != 0:
			if err := c.checkBucket(pg, rest, depth); err != nil {
				return err
			}
			if root {
				c.buckets[string(key)] = true
			}
		case root:
			return fmt.Errorf("page %d element %d: a bucket is no longer marked as one", pg, i)
		}
	}
	return nil
}

// checkBucket follows a bucket's root page, or checks the page inlined in its value.
func (c *boltFile) checkBucket(pg uint64, value []byte, depth int) error {
	if len(value) < 16 {
		return fmt.Errorf("page %d: a bucket's header is cut", pg)
	}
	if root := bo.Uint64(value); root != 0 {
		return c.walk(root, nil, nil, depth+1, false)
	}
	if inline := value[16:]; len(inline) < boltHeader || bo.Uint16(inline[8:]) != boltLeaf {
		return fmt.Errorf("page %d: a bucket's inline page is damaged", pg)
	}
	return c.checkPage(pg, value[16:], nil, nil, depth+1, false)
}

// boltElement returns the key and, on a leaf, the value of element i, within the page.
func boltElement(page []byte, i int, flags uint16) (key, value []byte, err error) {
	off := boltHeader + i*boltElem
	e := page[off : off+boltElem]
	pos, ksize, vsize := uint64(bo.Uint32(e)), uint64(bo.Uint32(e[4:])), uint64(0)
	if flags == boltLeaf {
		pos, ksize, vsize = uint64(bo.Uint32(e[4:])), uint64(bo.Uint32(e[8:])), uint64(bo.Uint32(e[12:]))
	}
	start := uint64(off) + pos
	if ksize == 0 || pos < boltElem || start+ksize+vsize > uint64(len(page)) {
		return nil, nil, errors.New("it points outside of its page")
	}
	return page[start : start+ksize], page[start+ksize : start+ksize+vsize], nil
}
