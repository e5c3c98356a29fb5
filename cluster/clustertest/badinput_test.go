package clustertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// TestBadInput sends every row of the specification's table to a real node, and
// to one that does not lead: it must not make a difference.
func TestBadInput(t *testing.T) {
	t.Parallel()
	one := Start(t, 1)
	three := New(t, 3)
	three.Nodes[0].Start()
	rows := section(t, "8. Bad input")[1:]
	if len(rows) < 20 {
		t.Fatalf("only %d rows", len(rows))
	}
	good := one.Nodes[0].Dial()
	token := good.Lock("good", 60)
	for _, node := range []*Node{one.Nodes[0], three.Nodes[0]} {
		for _, row := range rows {
			t.Run(node.Client+"/"+row[0], func(t *testing.T) {
				c := Dial(t, node.Client)
				c.SendRaw(specBytes(t, row[1]))
				if row[2] == "none" { // truncated: the stream ends there
					_ = c.Conn.(*net.TCPConn).CloseWrite()
					c.Closed(replyWait)
					return
				}
				code, _ := strconv.Atoi(row[3])
				owner, _ := strconv.ParseUint(row[4], 10, 64)
				r := c.Expect(wire.OpRefused, owner)
				if int(r.Code) != code || r.Text == "" {
					t.Fatalf("code %d %q, want %d and a reason", r.Code, r.Text, code)
				}
				switch row[5] {
				case "closed":
					c.Closed(replyWait)
				case "stays open":
					c.Send(wire.Request{Op: wire.OpPing, Owner: 99})
					if r := c.Next(); r.Owner != 99 || r.Op != wire.OpPong && r.Op != wire.OpMoved {
						t.Fatalf("after the refusal: %v", r)
					}
				default:
					t.Fatalf("what is %q?", row[5])
				}
			})
		}
	}
	if s := good.Query("good"); s.Token != token {
		t.Fatalf("a good session's lock: %+v", s)
	}
	if s := one.Nodes[0].status(); s.Grants != 1 {
		t.Fatalf("%d grants, want the one of the good session: bad input was executed", s.Grants)
	}
}

func TestLateHelloEndsTheSession(t *testing.T) {
	t.Parallel()
	c := Start(t, 1).Nodes[0].Dial()
	c.Send(wire.Request{Op: wire.OpHello, Version: 1, Owner: 1, Text: []byte("app/1")}, wire.Request{Op: wire.OpHello, Version: 1, Owner: 2})
	c.Expect(wire.OpHelloOK, 1)
	if r := c.Expect(wire.OpRefused, 2); r.Code != wire.CodeLateHello {
		t.Fatalf("code %d", r.Code)
	}
	c.Closed(replyWait)
}

// TestHostileSessions puts many sessions that misbehave in every known way beside
// good ones. The bad lose their sessions in time; the good notice nothing.
func TestHostileSessions(t *testing.T) {
	t.Parallel()
	c := Start(t, 1, "--first-frame-timeout", "1s", "--frame-timeout", "1s", "--write-timeout", "1s",
		"--write-buffer-bytes", "65536", "--close-grace", "300ms")
	node := c.Nodes[0]

	var slowest atomic.Int64
	stop, stopped := make(chan struct{}), make(chan error, 1)
	good := node.Dial()
	go func() { stopped <- goodClient(good, stop, &slowest) }()

	garbage(t, node)
	begin := time.Now()
	var reaped []*Conn
	for range 50 { // says nothing at all
		reaped = append(reaped, node.Dial())
	}
	for range 50 { // begins a frame and never ends it
		c := node.Dial()
		c.SendRaw([]byte("A\x00\x05\x00\x00"))
		reaped = append(reaped, c)
	}
	dribble(t, node, begin)
	for _, c := range reaped {
		c.Closed(10 * time.Second)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("silent sessions were ended after %v: a session has 1 s to say something", took)
	}
	neverReads(t, node)

	// A session that has spoken may be silent for as long as it likes.
	idle := node.Dial()
	idle.Quiet()
	Eventually(t, func() error {
		if n := node.status().Sessions; n != 2 {
			return fmt.Errorf("%d sessions, want the two good ones", n)
		}
		return nil
	})
	idle.Quiet()
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if worst := time.Duration(slowest.Load()); worst > 5*time.Second {
		t.Errorf("a good client waited %v for its lock", worst)
	}
	if s := node.status(); s.Grants != 0 {
		t.Errorf("%d grants are left", s.Grants)
	}
}

// goodClient locks and unlocks until it is told to stop. It may not use t: it runs
// beside the test.
func goodClient(c *Conn, stop <-chan struct{}, slowest *atomic.Int64) error {
	for n := uint64(1); ; n += 2 {
		select {
		case <-stop:
			return nil
		default:
		}
		begin := time.Now()
		raw, _ := wire.AppendRequest(nil, &wire.Request{Op: wire.OpAcquire, Lease: 10, Owner: n, Text: []byte("good")})
		if _, err := c.Write(raw); err != nil {
			return fmt.Errorf("a good client: %w", err)
		}
		r, err := c.ReadReply(20 * time.Second)
		if err != nil || r.Op != wire.OpAcquired {
			return fmt.Errorf("a good client's acquire: %v %w", r, err)
		}
		raw, _ = wire.AppendRequest(nil, &wire.Request{Op: wire.OpRelease, Owner: n + 1, Token: r.Token, Text: []byte("good")})
		if _, err := c.Write(raw); err != nil {
			return fmt.Errorf("a good client: %w", err)
		}
		if r, err := c.ReadReply(20 * time.Second); err != nil || r.Op != wire.OpReleased {
			return fmt.Errorf("a good client's release: %v %w", r, err)
		}
		if took := time.Since(begin); int64(took) > slowest.Load() {
			slowest.Store(int64(took))
		}
	}
}

// garbage sends random bytes over many sessions.
func garbage(t *testing.T, node *Node) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c := node.Dial()
		raw := make([]byte, 1+rng.IntN(2000))
		for i := range raw {
			raw[i] = byte(rng.Uint32())
		}
		_, _ = c.Write(raw) // the server may have closed already
		_ = c.Close()
	}
}

// dribble sends one frame byte by byte, slower than allowed, and expects to be cut
// off before it is done.
func dribble(t *testing.T, node *Node, begin time.Time) {
	c := node.Dial()
	frame, err := wire.AppendRequest(nil, &wire.Request{Op: wire.OpAcquire, Lease: 60, Owner: 5, Text: bytes.Repeat([]byte("d"), 40)})
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range frame {
		At(begin.Add(time.Duration(i) * 100 * time.Millisecond))
		if _, err := c.Write([]byte{b}); err != nil {
			return
		}
	}
	// The last write may have gone into a socket that nobody reads any more.
	r, err := c.ReadReply(replyWait)
	if err == nil {
		t.Fatalf("a frame that took %v was answered: %v", time.Since(begin), r)
	}
}

// neverReads pipelines requests without reading a reply, until it is cut off.
func neverReads(t *testing.T, node *Node) {
	c := node.Dial()
	key := strings.Repeat("n", 500)
	var frames []byte
	for i := range 100 {
		var err error
		frames, err = wire.AppendRequest(frames, &wire.Request{Op: wire.OpQuery, Owner: uint64(i), Text: []byte(key)})
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = c.SetWriteDeadline(time.Now().Add(Patience))
	for {
		if _, err := c.Write(frames); err != nil {
			var timeout net.Error
			if asTimeout(err, &timeout) {
				t.Errorf("a client that never reads still has its session after %v", Patience)
			}
			return
		}
	}
}
