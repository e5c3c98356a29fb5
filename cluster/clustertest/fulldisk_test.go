package clustertest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/wire"
)

// smallDisk mounts a file system of a few megabytes. Where that is not possible
// (it takes root and a loop device) the test is skipped, and says so.
func smallDisk(t *testing.T, megabytes int64) string {
	t.Helper()
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(megabytes << 20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range [][]string{
		{"mkfs.ext4", "-q", "-m", "0", image},
		{"mount", "-o", "loop", image, mount},
	} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Skipf("NOT TESTED: a full disk needs root and a loop device: %s: %v %s", strings.Join(cmd, " "), err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	return mount
}

// TestFullDisk: a leader whose disk is full ends itself with one clear line; the
// others go on and lose nothing. With room again it comes back.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 40)
	c := New(t, 3)
	node := c.Nodes[0]
	node.Dir = filepath.Join(disk, "n1")
	c.Start()
	c.WaitReady()
	// The node with the small disk shall lead: the others are restarted until it does.
	for c.WaitLeader() != node {
		leader := c.Leader()
		leader.Stop()
		leader.Start()
		c.WaitReady()
	}
	conn := node.Dial()
	token := conn.Lock("job", 250)

	filler := filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(f, zeroes{})
	if err == nil {
		t.Fatal("the disk has no end")
	}
	t.Logf("the disk was full after %d more bytes: %v", n, err)
	_ = f.Close()

	// Acquires fill what bbolt has in reserve. All that are answered are kept.
	acquired := map[string]uint64{"job": token}
	for i := 0; !node.proc.Ended(); i++ {
		key := fmt.Sprintf("%0500d", i)
		raw, _ := wire.AppendRequest(nil, &wire.Request{Op: wire.OpAcquire, Lease: 250, Owner: uint64(i), Text: []byte(key)})
		if _, err := conn.Write(raw); err != nil {
			break
		}
		r, err := conn.ReadReply(Patience)
		if err != nil || r.Op != wire.OpAcquired {
			break
		}
		acquired[key] = r.Token
	}
	if code := node.WaitExit(); code != 70 {
		t.Errorf("with a full disk the node ended with code %d, want 70", code)
	}
	if log := node.Log(); !strings.Contains(log, "no space left on device") {
		t.Errorf("the node does not say that its disk is full")
	}
	t.Logf("%d locks were granted before the end", len(acquired))
	after := c.WaitReady().Dial()
	for key, token := range acquired {
		if s := after.Query(key); s.Token != token {
			t.Fatalf("%s says %+v after its leader's disk was full, want token %d", strings.TrimLeft(key, "0"), s, token)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	node.Start()
	c.WaitReady()
	c.WaitApplied(node)
}

// zeroes is an endless reader.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { return len(p), nil }
