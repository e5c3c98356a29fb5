package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// Dial implements raft.StreamLayer. The address names the server that must answer.
func (s *peerStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	to, hostport, err := parseServerAddr(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(timeout, handshakeTimeout))
	defer cancel()
	c, _, err := s.connect(ctx, purposeRaft, to, hostport)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return c, nil
}

// connect dials, resolving the name anew, and runs the calling side of the
// handshake. The connection it returns still has ctx's deadline set.
func (s *peerStream) connect(ctx context.Context, p purpose, to serverName, hostport string) (*peerConn, *welcome, error) {
	if s.isClosed() {
		return nil, nil, errClosed
	}
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	raw, err := d.DialContext(ctx, "tcp", hostport)
	if err != nil {
		return nil, nil, err
	}
	c, err := s.track(raw, p == purposeRaft)
	if err != nil {
		_ = raw.Close()
		return nil, nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	h := hello{purpose: p, cluster: s.id.clusterID(), name: s.id.clusterName, from: s.id.self, to: to}
	w, err := s.greet(c, &h)
	if err != nil {
		_ = c.Close()
		if r := (*refusal)(nil); errors.As(err, &r) {
			s.warn("refused by "+hostport, "a peer refused this node", "peer", to.node, "addr", hostport, "reason", r.reason)
		}
		return nil, nil, err
	}
	return c, w, nil
}

// greet sends the hello, reads the welcome and checks it: the two sides must
// agree on who they are, not only the accepting one.
func (s *peerStream) greet(c net.Conn, h *hello) (*welcome, error) {
	if _, err := c.Write(h.encode()); err != nil {
		return nil, err
	}
	body, err := readFrame(c)
	if err != nil {
		if v := versionError(0); errors.As(err, &v) {
			return nil, &refusal{code: refusedVersion, reason: v.Error()}
		}
		return nil, err
	}
	w, err := decodeWelcome(body)
	if err != nil {
		return nil, err
	}
	own := s.id.clusterID()
	switch {
	case w.code != welcomeOK:
		return nil, &refusal{code: w.code, reason: w.reason, cluster: w.cluster, server: w.server}
	case w.server.node != h.to.node || h.to.inc != 0 && w.server.inc != h.to.inc:
		return nil, &refusal{code: refusedServer, reason: fmt.Sprintf("%s answered, not %s", w.server, h.to), cluster: w.cluster, server: w.server}
	case own.known() && w.cluster.known() && own != w.cluster:
		return nil, &refusal{code: refusedID, reason: fmt.Sprintf("it is a node of cluster id %s, not %s", w.cluster, own), cluster: w.cluster, server: w.server}
	}
	return &w, nil
}

// probePeer asks the node at hostport what it is. Any incarnation may answer.
func (s *peerStream) probePeer(ctx context.Context, node, hostport string) (ans probeAnswer, err error) {
	c, w, err := s.connect(ctx, purposeProbe, serverName{node: node}, hostport)
	if err != nil {
		return ans, err
	}
	defer c.Close()
	if err := readControl(c, &ans); err != nil {
		return ans, err
	}
	ans.server, ans.cluster = w.server, w.cluster
	return ans, nil
}

// requestJoin asks the leader to take this node in.
func (s *peerStream) requestJoin(ctx context.Context, leader serverName, hostport string, req joinRequest) (ans joinAnswer, err error) {
	c, _, err := s.connect(ctx, purposeJoin, leader, hostport)
	if err != nil {
		return ans, err
	}
	defer c.Close()
	if err := writeControl(c, req); err != nil {
		return ans, err
	}
	return ans, readControl(c, &ans)
}

// writeControl and readControl move one bounded JSON line: probes and joins are
// rare and small.
func writeControl(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func readControl(r io.Reader, v any) error {
	return json.NewDecoder(io.LimitReader(r, maxControl)).Decode(v)
}
