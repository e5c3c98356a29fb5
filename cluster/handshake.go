package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The handshake is the first thing on every peer connection, in both
// directions, before raft decodes a byte:
//
//	hello    "HFPC" version:1 length:2 | purpose:1 cluster:16 from-inc:8 to-inc:8 name:s from:s to:s
//	welcome  "HFPC" version:1 length:2 | code:1 cluster:16 inc:8 node:s reason:s
//
// Integers are big-endian, s is length:1 and that many bytes. The first seven
// bytes keep their meaning in every version. to-inc 0 = any incarnation.
const (
	handshakeMagic   = "HFPC"
	handshakeVersion = 1
	handshakeHead    = len(handshakeMagic) + 3
	maxHandshake     = 1024 // bytes of the body; checked before it is read
)

// purpose is what a peer connection is for.
type purpose byte

const (
	purposeRaft  purpose = 1 // raft's own messages follow
	purposeProbe purpose = 2 // the answer describes the node; then the connection ends
	purposeJoin  purpose = 3 // a join request and its answer follow
)

// welcomeCode says whether the peer is let in.
type welcomeCode byte

const (
	welcomeOK      welcomeCode = 0
	refusedVersion welcomeCode = 1 // another handshake version
	refusedName    welcomeCode = 2 // another cluster name
	refusedID      welcomeCode = 3 // another cluster id
	refusedServer  welcomeCode = 4 // not the server the caller wants
	refusedSelf    welcomeCode = 5 // the caller has our own node id
	refusedPurpose welcomeCode = 6 // unknown purpose
	refusedBusy    welcomeCode = 7 // too many connections, or going down
)

// hello is what the dialling side says of itself and of whom it wants.
type hello struct {
	purpose  purpose
	cluster  clusterID // zero = not yet known
	name     string    // cluster name
	from, to serverName
}

// welcome is the answer.
type welcome struct {
	code    welcomeCode
	cluster clusterID
	server  serverName
	reason  string // why not; one line, empty if let in
}

var (
	errHandshake = errors.New("not a holdfast peer")
	errShort     = errors.New("handshake is cut short")
)

// versionError is another handshake version on the other side.
type versionError byte

func (v versionError) Error() string {
	return fmt.Sprintf("it speaks peer protocol version %d, this node %d: run versions that go together", byte(v), handshakeVersion)
}

func appendFrame(dst []byte, body []byte) []byte {
	dst = append(dst, handshakeMagic...)
	dst = append(dst, handshakeVersion)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(body)))
	return append(dst, body...)
}

// readFrame reads the head and, if it is acceptable, the body.
func readFrame(r io.Reader) ([]byte, error) {
	var head [handshakeHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if string(head[:len(handshakeMagic)]) != handshakeMagic {
		return nil, errHandshake
	}
	if v := head[len(handshakeMagic)]; v != handshakeVersion {
		return nil, versionError(v)
	}
	n := int(binary.BigEndian.Uint16(head[len(handshakeMagic)+1:]))
	if n > maxHandshake {
		return nil, errHandshake
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return body, nil
}

func appendString(dst []byte, s string) []byte {
	if len(s) > 255 {
		s = strings.ToValidUTF8(s[:255], "")
	}
	dst = append(dst, byte(len(s)))
	return append(dst, s...)
}

// reader takes fields off a body; the first short one sticks.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if r.err != nil || len(r.b) < n {
		r.err = errShort
		return make([]byte, n)
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte        { return r.take(1)[0] }
func (r *reader) uint64() uint64    { return binary.BigEndian.Uint64(r.take(8)) }
func (r *reader) string() string    { return string(r.take(int(r.byte()))) }
func (r *reader) id() (c clusterID) { copy(c[:], r.take(len(c))); return c }

// end fails if bytes are left.
func (r *reader) end() error {
	if r.err == nil && len(r.b) != 0 {
		r.err = errHandshake
	}
	return r.err
}

func (h *hello) encode() []byte {
	b := []byte{byte(h.purpose)}
	b = append(b, h.cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, h.from.inc)
	b = binary.BigEndian.AppendUint64(b, h.to.inc)
	b = appendString(b, h.name)
	b = appendString(b, h.from.node)
	b = appendString(b, h.to.node)
	return appendFrame(nil, b)
}

func decodeHello(body []byte) (h hello, err error) {
	r := reader{b: body}
	h.purpose = purpose(r.byte())
	h.cluster = r.id()
	h.from.inc, h.to.inc = r.uint64(), r.uint64()
	h.name, h.from.node, h.to.node = r.string(), r.string(), r.string()
	if err := r.end(); err != nil {
		return hello{}, err
	}
	// These end up in log lines and in the configuration.
	if !nameRule.MatchString(h.name) || !nameRule.MatchString(h.from.node) || !nameRule.MatchString(h.to.node) {
		return hello{}, errHandshake
	}
	return h, nil
}

func (w *welcome) encode() []byte {
	b := []byte{byte(w.code)}
	b = append(b, w.cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, w.server.inc)
	b = appendString(b, w.server.node)
	b = appendString(b, w.reason)
	return appendFrame(nil, b)
}

func decodeWelcome(body []byte) (w welcome, err error) {
	r := reader{b: body}
	w.code = welcomeCode(r.byte())
	w.cluster = r.id()
	w.server.inc = r.uint64()
	w.server.node, w.reason = r.string(), r.string()
	if err := r.end(); err != nil {
		return welcome{}, err
	}
	if w.server.node != "" && !nameRule.MatchString(w.server.node) {
		return welcome{}, errHandshake
	}
	w.reason = strings.ToValidUTF8(w.reason, "?")
	return w, nil
}

// judge decides whether the caller of a hello may come in.
func (s *peerStream) judge(h *hello) (welcomeCode, string) {
	own := s.id.clusterID()
	switch {
	case h.purpose != purposeRaft && h.purpose != purposeProbe && h.purpose != purposeJoin:
		return refusedPurpose, fmt.Sprintf("unknown purpose %d", h.purpose)
	case h.name != s.id.clusterName:
		return refusedName, fmt.Sprintf("this is a node of cluster %s, not %s", s.id.clusterName, h.name)
	case own.known() && h.cluster.known() && own != h.cluster:
		return refusedID, fmt.Sprintf("this is a node of cluster id %s, not %s", own, h.cluster)
	case h.to.node != s.id.self.node:
		return refusedServer, fmt.Sprintf("this is node %s, not %s: check the peer list", s.id.self.node, h.to.node)
	case h.from.node == s.id.self.node:
		return refusedSelf, fmt.Sprintf("this node has the same node id %s: give each node its own", h.from.node)
	case h.to.inc != 0 && h.to.inc != s.id.self.inc:
		return refusedServer, fmt.Sprintf("this is %s, a data directory other than that of %s", s.id.self, h.to)
	case h.purpose == purposeRaft && (h.to.inc == 0 || h.from.inc == 0):
		return refusedServer, "a raft connection must name both servers exactly"
	}
	return welcomeOK, ""
}

// refusal is a peer's definite no. It is an answer about who is there, unlike an
// unreachable address.
type refusal struct {
	code    welcomeCode
	reason  string
	cluster clusterID
	server  serverName // who answered; empty node if unknown
}

func (r *refusal) Error() string { return "peer refused: " + r.reason }
