package zzperf

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cluster"
	"github.com/holdfast-lock/holdfast/cluster/frontend"
	"github.com/holdfast-lock/holdfast/wire"
)

func TestPerf(t *testing.T) {
	var lns []net.Listener
	var peers []cluster.Peer
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		lns = append(lns, l)
		peers = append(peers, cluster.Peer{ID: fmt.Sprintf("n%d", i+1), Addr: l.Addr().String()})
	}
	var nodes []*cluster.Node
	addrs := map[string]string{}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for i := range 3 {
		cl, _ := net.Listen("tcp", "127.0.0.1:0")
		cfg := cluster.DefaultConfig()
		cfg.NodeID, cfg.DataDir, cfg.Peers, cfg.PeerListener = peers[i].ID, t.TempDir(), peers, lns[i]
		cfg.AdvertiseClientAddr = cl.Addr().String()
		cfg.Logger = log
		n, err := cluster.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		fc := frontend.DefaultConfig()
		if v := os.Getenv("FLY"); v != "" {
			fmt.Sscan(v, &fc.MaxEntriesInflight)
		}
		fc.Logger = log
		f := frontend.New(fc, n.Table(), n)
		if err := n.Start(f); err != nil {
			t.Fatal(err)
		}
		go f.Serve(cl)
		nodes = append(nodes, n)
		addrs[cfg.NodeID] = cl.Addr().String()
	}
	leader := ""
	for leader == "" {
		time.Sleep(50 * time.Millisecond)
		leader = nodes[0].LeaderClientAddr()
	}
	run := func(name string, clients, conns int, shared bool) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var lat []time.Duration
		pend := make([]chan wire.Reply, clients+1)
		cs := make([]net.Conn, conns)
		for i := range cs {
			c, err := net.Dial("tcp", leader)
			if err != nil {
				t.Fatal(err)
			}
			cs[i] = c
			go func() {
				r := wire.NewReplyReader(c)
				for {
					var rep wire.Reply
					if r.Read(&rep) != nil {
						return
					}
					pend[rep.Owner] <- rep
				}
			}()
		}
		for i := range pend {
			pend[i] = make(chan wire.Reply, 1)
		}
		end := time.Now().Add(4 * time.Second)
		for i := 1; i <= clients; i++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				c := cs[i%conns]
				key := fmt.Sprintf("key-%d", i)
				if shared {
					key = "one"
				}
				var l []time.Duration
				for time.Now().Before(end) {
					t0 := time.Now()
					b, _ := wire.AppendRequest(nil, &wire.Request{Op: 'A', Wait: 30, Lease: 30, Owner: uint64(i), Text: []byte(key)})
					c.Write(b)
					rep := <-pend[i]
					if rep.Op != 'A' {
						t.Errorf("got %c", rep.Op)
						return
					}
					l = append(l, time.Since(t0))
					b, _ = wire.AppendRequest(nil, &wire.Request{Op: 'R', Owner: uint64(i), Token: rep.Token, Text: []byte(key)})
					c.Write(b)
					if rep := <-pend[i]; rep.Op != 'R' {
						t.Errorf("got %c", rep.Op)
						return
					}
				}
				mu.Lock()
				lat = append(lat, l...)
				mu.Unlock()
			}()
		}
		wg.Wait()
		sort.Slice(lat, func(i, j int) bool { return lat[i] < lat[j] })
		fmt.Printf("%-20s %8d/s p50 %v p99 %v max %v\n", name, len(lat)/4, lat[len(lat)/2], lat[len(lat)*99/100], lat[len(lat)-1])
		for _, c := range cs {
			c.Close()
		}
	}
	run("1 client", 1, 1, false)
	run("256 own", 256, 4, false)
	run("64 shared", 64, 4, true)
}
