package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-lock/holdfast/wire"
)

// granter is a server on the loopback that grants and releases everything.
type granter struct {
	ln    net.Listener
	token atomic.Uint64
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
}

func newGranter(t testing.TB, conf *tls.Config) *granter {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if conf != nil {
		ln = tls.NewListener(ln, conf)
	}
	g := &granter{ln: ln}
	g.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			g.conns = append(g.conns, conn)
			g.mu.Unlock()
			g.wg.Go(func() { g.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		g.mu.Lock()
		for _, c := range g.conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		g.wg.Wait()
	})
	return g
}

func (g *granter) serve(conn net.Conn) {
	defer conn.Close()
	r := wire.NewRequestReader(conn)
	var buf []byte
	for {
		var req wire.Request
		if r.Read(&req) != nil {
			return
		}
		rep := wire.Reply{Op: req.Op, Owner: req.Owner, Version: req.Version}
		switch req.Op {
		case wire.OpAcquire:
			rep.Token = g.token.Add(1)
		case wire.OpCancel:
			continue
		case wire.OpQuery:
			rep.Op = wire.OpState
		}
		buf, _ = wire.AppendReply(buf, &rep)
		if !r.Buffered() {
			if _, err := conn.Write(buf); err != nil {
				return
			}
			buf = buf[:0]
		}
	}
}

func (g *granter) client(t testing.TB, opts ...Option) *Client {
	t.Helper()
	cl, err := Open(context.Background(), []string{g.ln.Addr().String()}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func pair(t testing.TB, cl *Client, key string) {
	l, err := cl.Acquire(context.Background(), key)
	if err == nil {
		err = l.Release(context.Background())
	}
	if err != nil {
		t.Error(err)
	}
}

func TestOverTCP(t *testing.T) {
	g := newGranter(t, nil)
	cl := g.client(t)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for range 20 {
				pair(t, cl, "k")
			}
		})
	}
	wg.Wait()
}

func TestOverTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(nil) // for its certificate
	srv.StartTLS()
	conf := srv.TLS.Clone()
	conf.NextProtos = nil
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	srv.Close()
	g := newGranter(t, conf)
	mine := &tls.Config{RootCAs: pool}
	pair(t, g.client(t, WithTLS(mine)), "k")
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, []string{g.ln.Addr().String()}, WithTLS(&tls.Config{})); err == nil {
		t.Error("believed a server without a certificate of ours")
	}
}

func TestAllocations(t *testing.T) {
	g := newGranter(t, nil)
	cl := g.client(t)
	if n := testing.AllocsPerRun(500, func() { pair(t, cl, "k") }); n >= 10 {
		t.Errorf("%v objects per lock and unlock", n)
	}
	if n := unsafe.Sizeof(call{}); n > 512 {
		t.Errorf("a pending acquire takes %d bytes", n)
	}
}

func BenchmarkPair(b *testing.B) {
	cl := newGranter(b, nil).client(b)
	b.ReportAllocs()
	for b.Loop() {
		pair(b, cl, "k")
	}
}

func BenchmarkPairOf256(b *testing.B) {
	cl := newGranter(b, nil).client(b)
	b.ReportAllocs()
	b.SetParallelism(128)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			pair(b, cl, "k")
		}
	})
}
