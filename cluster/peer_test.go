package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// stranger is a node's stream with an identity of the test's making.
func stranger(t *testing.T, node, cluster string, cid clusterID) *peerStream {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 1)
	id := &identity{self: serverName{node: node, inc: newIncarnation()}, clusterName: cluster, cluster: cid}
	s := newPeerStream(id, id.self.at(ln.Addr().String()), ln, 32, c.nodes[0].cfg.Logger)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestHandshakeRefusals(t *testing.T) {
	c := newCluster(t, 3).start()
	c.grant("a")
	tn := c.nodes[0]
	eventually(t, "cluster id known", func() bool { return tn.n.id.clusterID().known() })
	self, addr := tn.n.id.self, tn.n.addr
	for _, tc := range []struct {
		name     string
		from     *peerStream
		purpose  purpose
		to       serverName
		code     welcomeCode
		reason   string
		expectOK bool
	}{
		{name: "right", from: stranger(t, "n2", "test", clusterID{}), purpose: purposeRaft, to: self, expectOK: true},
		{name: "cluster name", from: stranger(t, "n2", "other", clusterID{}), purpose: purposeRaft, to: self, code: refusedName, reason: "cluster test, not other"},
		{name: "cluster id", from: stranger(t, "n2", "test", clusterID{1}), purpose: purposeRaft, to: self, code: refusedID, reason: "cluster id"},
		{name: "node id", from: stranger(t, "n2", "test", clusterID{}), purpose: purposeProbe, to: serverName{node: "n3"}, code: refusedServer, reason: "node n1, not n3"},
		{name: "incarnation", from: stranger(t, "n2", "test", clusterID{}), purpose: purposeRaft, to: serverName{node: "n1", inc: 5}, code: refusedServer, reason: "data directory"},
		{name: "own id", from: stranger(t, "n1", "test", clusterID{}), purpose: purposeProbe, to: serverName{node: "n1"}, code: refusedSelf, reason: "same node id"},
		{name: "raft without a name", from: stranger(t, "n2", "test", clusterID{}), purpose: purposeRaft, to: serverName{node: "n1"}, code: refusedServer, reason: "exactly"},
		{name: "purpose", from: stranger(t, "n2", "test", clusterID{}), purpose: 9, to: self, code: refusedPurpose, reason: "purpose"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			conn, _, err := tc.from.connect(ctx, tc.purpose, tc.to, addr)
			if tc.expectOK {
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
				return
			}
			var r *refusal
			if !errors.As(err, &r) {
				t.Fatalf("not refused: %v", err)
			}
			if r.code != tc.code || !strings.Contains(r.reason, tc.reason) {
				t.Fatalf("code %d, reason %q", r.code, r.reason)
			}
			if !tn.lines.has(tc.reason) {
				t.Fatalf("the node did not log %q", tc.reason)
			}
		})
	}
}

// countingAccept sees every connection that raft gets.
func TestGarbageNeverReachesRaft(t *testing.T) {
	c := newCluster(t, 1)
	lines := c.nodes[0].lines
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id := &identity{self: serverName{node: "n1", inc: 7}, clusterName: "test"}
	s := newPeerStream(id, id.self.at(ln.Addr().String()), ln, 32, c.nodes[0].cfg.Logger)
	s.start()
	defer func() { _ = s.Close(); s.wg.Wait() }()
	reached := make(chan struct{})
	go func() {
		defer close(reached)
		if conn, err := s.Accept(); err == nil {
			t.Error("a connection reached raft")
			_ = conn.Close()
		}
	}()
	good := hello{purpose: purposeRaft, name: "test", from: serverName{"n2", 1}, to: serverName{"n1", 7}}
	frame := good.encode()
	cases := [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
		bytes.Repeat([]byte{0xff}, 4096),
		append([]byte("HFPC\x02"), frame[5:]...),                 // another version
		append([]byte("HFPC\x01\xff\xff"), frame[7:]...),         // too long
		appendFrame(nil, append(frame[handshakeHead:], 0)),       // trailing bytes
		appendFrame(nil, frame[handshakeHead:len(frame)-1]),      // short
		bytes.Replace(frame, []byte("test"), []byte("te\nt"), 1), // a name that would break a log line
	}
	for i, b := range cases {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(b)
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		answer, err := io.ReadAll(conn)
		if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
			t.Errorf("case %d: not closed", i)
		}
		if i == 3 {
			body, err := readFrame(bytes.NewReader(answer))
			if err != nil {
				t.Fatalf("no answer to another version: %v", err)
			}
			if w, err := decodeWelcome(body); err != nil || w.code != refusedVersion {
				t.Fatalf("answer to another version: %+v %v", w, err)
			}
		}
		_ = conn.Close()
	}
	// Cut at every byte.
	for cut := range len(frame) {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(frame[:cut])
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, _ := io.Copy(io.Discard, conn); n != 0 {
			t.Errorf("cut at %d: %d bytes of answer", cut, n)
		}
		_ = conn.Close()
	}
	if !lines.has("not of a peer") {
		t.Error("garbage was not logged")
	}
	_ = s.Close()
	<-reached
}

func TestConnectionCaps(t *testing.T) {
	c := newCluster(t, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id := &identity{self: serverName{node: "n1", inc: 7}, clusterName: "test"}
	s := newPeerStream(id, id.self.at(ln.Addr().String()), ln, 16, c.nodes[0].cfg.Logger)
	s.start()
	defer func() { _ = s.Close(); s.wg.Wait() }()
	var open []net.Conn
	for range 40 {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	closed := make(chan struct{}, len(open))
	for _, conn := range open {
		go func() {
			_, _ = conn.Read(make([]byte, 1))
			closed <- struct{}{}
		}()
	}
	for range len(open) - 16 { // those over the cap are closed at once, long before the handshake's deadline
		<-closed
	}
	for _, conn := range open {
		_ = conn.Close()
	}
}

func TestNodeOfAnotherClusterIsTurnedAway(t *testing.T) {
	c := newCluster(t, 3)
	c.nodes[2].cfg.ClusterName = "other"
	c.start()
	eventually(t, "both sides log it", func() bool {
		return c.nodes[0].lines.has("cluster test, not other") && c.nodes[2].lines.has("cluster other, not test")
	})
	for _, tn := range c.nodes {
		if s := tn.n.Status(); len(s.Members) != 0 {
			t.Fatalf("formed: %+v", s)
		}
	}
}

func FuzzHello(f *testing.F) {
	good := hello{purpose: purposeRaft, name: "test", from: serverName{"n2", 1}, to: serverName{"n1", 7}}
	f.Add(good.encode())
	f.Add([]byte("HFPC\x01\x00\x05abcde"))
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		h, err := decodeHello(body)
		if err != nil {
			return
		}
		body2, err := readFrame(bytes.NewReader(h.encode()))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeHello(body2); err != nil || again != h {
			t.Fatalf("%+v became %+v: %v", h, again, err)
		}
	})
}

func FuzzWelcome(f *testing.F) {
	good := welcome{code: refusedID, cluster: clusterID{3}, server: serverName{"n1", 9}, reason: "why"}
	f.Add(good.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		w, err := decodeWelcome(body)
		if err != nil {
			return
		}
		body2, err := readFrame(bytes.NewReader(w.encode()))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeWelcome(body2); err != nil || again != w {
			t.Fatalf("%+v became %+v: %v", w, again, err)
		}
	})
}
