package command

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serveAlone runs a cluster of one until cancel is called.
func serveAlone(ctx context.Context, dir string, base int, stderr *bytes.Buffer) <-chan int {
	done := make(chan int, 1)
	addr := func(offset int) string { return devAddrs(base, offset)[0] }
	go func() {
		done <- Run(ctx, []string{"serve", "--node-id", "n1", "--data-dir", dir, "--peers", "n1=" + addr(1),
			"--client-addr", addr(0), "--peer-addr", addr(1), "--admin-addr", addr(2)},
			nil, Streams{In: os.Stdin, Out: os.Stdout, Err: stderr})
	}()
	return done
}

func TestServeTellsSystemd(t *testing.T) {
	base, err := freeBasePort()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	expect := func(want string) {
		t.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(20 * time.Second))
		buf := make([]byte, 256)
		n, _, err := socket.ReadFrom(buf)
		if got := string(buf[:n]); err != nil || got != want {
			t.Fatalf("systemd was told %q (%v), want %q", got, err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir := t.TempDir()
	var first, second bytes.Buffer
	done := serveAlone(ctx, dir, base, &first)
	expect("READY=1")

	// The same directory again, with other ports: one clear line.
	other, err := freeBasePort()
	if err != nil {
		t.Fatal(err)
	}
	if code := <-serveAlone(ctx, dir, other, &second); code != ExitFailed {
		t.Errorf("a directory in use: code %d", code)
	}
	last := strings.TrimSpace(second.String())
	last = last[strings.LastIndex(last, "\n")+1:]
	if !strings.HasPrefix(last, "holdfast: ") || !strings.Contains(last, dir) {
		t.Errorf("a directory in use: %q", last)
	}

	cancel()
	expect("STOPPING=1")
	if code := <-done; code != 0 {
		t.Errorf("code %d after a stop\n%s", code, first.String())
	}
}

func TestTakenPortsAreNamed(t *testing.T) {
	base, err := freeBasePort()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", devAddrs(base, 1)[2])
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = checkPortsFree(base)
	if want := fmt.Sprintf("127.0.0.1:%d, the peer address of n3, is taken", base+21); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
}
