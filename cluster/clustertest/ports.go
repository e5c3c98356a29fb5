package clustertest

import (
	"fmt"
	"net"
	"os"
	"sync"
)

var lastPort = struct {
	sync.Mutex
	n int
}{n: firstPort + os.Getpid()%100*100}

// The ports lie below the range the system gives to outgoing connections: one of
// those could take the port of a node that is down for a moment.
const firstPort, endPort = 20_000, 32_000

// reserve returns n listeners on free loopback ports. Close them right before what
// needs the ports starts; a conflict is then so unlikely that starting again is
// enough to deal with it.
func reserve(n int) ([]net.Listener, error) {
	lastPort.Lock()
	defer lastPort.Unlock()
	var got []net.Listener
	for range endPort - firstPort {
		lastPort.n++
		if lastPort.n >= endPort {
			lastPort.n = firstPort
		}
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lastPort.n))
		if err != nil {
			continue
		}
		if got = append(got, ln); len(got) == n {
			return got, nil
		}
	}
	closeAll(got)
	return nil, fmt.Errorf("no %d free ports between %d and %d", n, firstPort, endPort)
}

func closeAll(lns []net.Listener) {
	for _, ln := range lns {
		_ = ln.Close()
	}
}
