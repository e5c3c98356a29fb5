package admin

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serve runs the site on a real socket.
func (s *site) serve() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.srv.Serve(ln) }()
	s.t.Cleanup(func() {
		_ = s.srv.Close()
		if err := <-done; err != http.ErrServerClosed {
			s.t.Errorf("Serve: %v", err)
		}
	})
	return ln.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestHeadAndHeadersOverASocket(t *testing.T) {
	s := newSite(t)
	addr := s.serve()
	c := dial(t, addr)
	fmt.Fprintf(c, "HEAD /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	raw, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, want := range []string{"HTTP/1.1 200 OK", "Content-Type: application/json", "Cache-Control: no-store", "X-Content-Type-Options: nosniff"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if !strings.HasSuffix(text, "\r\n\r\n") {
		t.Errorf("HEAD has a body:\n%s", text)
	}

	c = dial(t, addr)
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n", strings.Repeat("h", 64<<10))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(line, "431") {
		t.Errorf("a header of 64 KiB: %q, %v", line, err)
	}
}

func TestServerIsBounded(t *testing.T) {
	srv := newSite(t).srv
	for name, d := range map[string]time.Duration{
		"ReadHeaderTimeout": srv.ReadHeaderTimeout, "ReadTimeout": srv.ReadTimeout,
		"WriteTimeout": srv.WriteTimeout, "IdleTimeout": srv.IdleTimeout,
	} {
		if d <= 0 || d > time.Minute {
			t.Errorf("%s is %v", name, d)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s := newSite(t)
	addr := s.serve()
	conns := make([]net.Conn, maxConns)
	for i := range conns {
		conns[i] = dial(t, addr)
	}
	// One more is closed unheard.
	extra := dial(t, addr)
	fmt.Fprintf(extra, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	if raw, _ := io.ReadAll(extra); len(raw) != 0 {
		t.Fatalf("connection %d was served: %q", maxConns+1, raw)
	}
	// Those within the bound are served, and a place that is left is free again.
	get := func(c net.Conn) error {
		if _, err := fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			return err
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && !strings.Contains(line, "200") {
			err = fmt.Errorf("answered %q", line)
		}
		return err
	}
	if err := get(conns[0]); err != nil {
		t.Fatal(err)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for get(dial(t, addr)) != nil {
		select {
		case <-deadline.C:
			t.Fatal("no place became free")
		case <-tick.C:
		}
	}
}
