package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// quickServer grants everything at once, over loopback and without allocating.
func quickServer(tb testing.TB, wrap func(net.Listener) net.Listener) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	addr := ln.Addr().String()
	if wrap != nil {
		ln = wrap(ln)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { quickServe(conn) })
		}
	})
	tb.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return addr
}

func quickServe(conn net.Conn) {
	defer conn.Close()
	var buf []byte
	var token uint64
	r := wire.NewRequestReader(conn)
	for {
		var req wire.Request
		if r.Read(&req) != nil {
			return
		}
		rep := wire.Reply{Op: wire.Op(req.Op), Owner: req.Owner, Version: wire.Version}
		if req.Op == wire.OpAcquire {
			token++
			rep.Token = token
		}
		buf, _ = wire.AppendReply(buf, &rep)
		if r.Buffered() {
			continue
		}
		if _, err := conn.Write(buf); err != nil {
			return
		}
		buf = buf[:0]
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	c, err := Open(b.Context(), []string{quickServer(b, nil)})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	cycle := func() {
		l, err := c.Acquire(b.Context(), "some/key")
		if err == nil {
			err = l.Release(b.Context())
		}
		if err != nil {
			b.Error(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			cycle()
		}
	})
	b.Run("many", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				cycle()
			}
		})
	})
}

func TestTLS(t *testing.T) {
	certs := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	certs.Close()
	addr := quickServer(t, func(ln net.Listener) net.Listener {
		return tls.NewListener(ln, &tls.Config{Certificates: certs.TLS.Certificates})
	})
	roots := certs.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	c, err := Open(t.Context(), []string{addr}, WithTLS(&tls.Config{RootCAs: roots}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = Open(ctx, []string{addr}, WithTLS(&tls.Config{})) // does not trust it
	wantKinds(t, err, ErrUnavailable, context.DeadlineExceeded)
}
