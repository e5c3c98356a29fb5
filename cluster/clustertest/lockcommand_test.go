package clustertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

// command is one "holdfast lock" with a shell script under it. The script finds
// files of its own in its working directory, $DIR.
type command struct {
	*Process
	t   *testing.T
	dir string
}

// lockCommand starts it and does not wait.
func lockCommand(t *testing.T, c *Cluster, key, script string, flags ...string) *command {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"lock", key}, flags...)
	args = append(args, "--", "sh", "-c", script)
	env := []string{"HOLDFAST_ENDPOINTS=" + c.Endpoints(), "DIR=" + dir} // the script inherits it
	return &command{Process: StartProcess(t, env, Binary(t), args...), t: t, dir: dir}
}

// file waits for a file that the script writes, and returns its content.
func (c *command) file(name string) (text string) {
	c.t.Helper()
	Eventually(c.t, func() error {
		raw, err := os.ReadFile(filepath.Join(c.dir, name))
		text = strings.TrimSpace(string(raw))
		if err == nil && text == "" {
			err = errors.New("empty")
		}
		if err != nil && c.Ended() {
			c.t.Fatalf("the command ended with code %d and wrote no %s\nstderr: %s", c.code(), name, c.Err)
		}
		return err
	})
	return text
}

func (c *command) has(name string) bool {
	_, err := os.Stat(filepath.Join(c.dir, name))
	return err == nil
}

// pid reads a process id that the script wrote.
func (c *command) pid(name string) int {
	c.t.Helper()
	pid, err := strconv.Atoi(c.file(name))
	if err != nil {
		c.t.Fatal(err)
	}
	return pid
}

// gone waits until a process has ended. One that is dead and not collected yet
// counts as ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	Eventually(t, func() error {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil
		}
		if _, state, ok := strings.Cut(string(raw), ") "); ok && (state[0] == 'Z' || state[0] == 'X') {
			return nil
		}
		return fmt.Errorf("process %d still runs", pid)
	})
}

// untilStopped is a script that runs until the file "stop" exists and then ends
// with code 7.
const untilStopped = `echo "$HOLDFAST_TOKEN" >$DIR/token
while [ ! -e $DIR/stop ]; do sleep 0.05; done
exit 7`

func (c *command) stop() {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, "stop"), nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func TestLockCommand(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	for name, test := range map[string]func(*testing.T, *Cluster, *Conn){
		"holds, renews, passes the code on and releases":              lockHolds,
		"ends the command when the lock is lost":                      lockLost,
		"kills a command that ignores SIGTERM":                        lockLostStubborn,
		"passes SIGHUP on (Consul 2489)":                              lockHangup,
		"signals the whole process group (Consul 2022)":               lockGroup,
		"ends the command when it is itself killed":                   lockKilled,
		"starts nothing after an interrupt (Consul 800)":              lockInterrupted,
		"a command that exits 0 after its lock was lost is a failure": lockLostQuietly,
		"times out, and starts nothing":                               lockTimeout,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := c.For(t)
			test(t, c, c.Nodes[0].Dial())
		})
	}
}

func lockHolds(t *testing.T, c *Cluster, conn *Conn) {
	cmd := lockCommand(t, c, "holds", untilStopped, "--lease", "1s")
	token := cmd.file("token")
	begin := time.Now()
	for time.Since(begin) < 2500*time.Millisecond { // more than two leases
		if s := conn.Query("holds"); fmt.Sprint(s.Token) != token {
			t.Fatalf("the lock of token %s says %+v", token, s)
		}
	}
	cmd.stop()
	if code := cmd.Wait(Patience); code != 7 {
		t.Fatalf("code %d, the command's was 7\n%s", code, cmd.Err)
	}
	if s := conn.Query("holds"); s.Token != 0 {
		t.Fatalf("after the command the key says %+v", s)
	}
}

// steal ends the command's grant behind its back, by its exact token.
func steal(t *testing.T, cmd *command, conn *Conn, key string) {
	t.Helper()
	token, err := strconv.ParseUint(cmd.file("token"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if op := conn.Release(key, token); op != wire.OpReleased {
		t.Fatalf("release of %d: %c", token, op)
	}
}

const lostCode = 74

func lockLost(t *testing.T, c *Cluster, conn *Conn) {
	cmd := lockCommand(t, c, "lost", `trap 'echo yes >$DIR/term; exit 0' TERM
echo "$HOLDFAST_TOKEN" >$DIR/token
while :; do sleep 0.05; done`, "--lease", "3s")
	steal(t, cmd, conn, "lost")
	if code := cmd.Wait(Patience); code != lostCode {
		t.Fatalf("code %d, want %d\n%s", code, lostCode, cmd.Err)
	}
	if !cmd.has("term") {
		t.Fatal("the command got no SIGTERM")
	}
}

func lockLostStubborn(t *testing.T, c *Cluster, conn *Conn) {
	cmd := lockCommand(t, c, "stubborn", `trap '' TERM
sleep 1000 & echo $! >$DIR/child
echo "$HOLDFAST_TOKEN" >$DIR/token
while :; do sleep 0.05; done`, "--lease", "3s", "--kill-after", "300ms")
	child := cmd.pid("child")
	steal(t, cmd, conn, "stubborn")
	if code := cmd.Wait(Patience); code != lostCode {
		t.Fatalf("code %d, want %d\n%s", code, lostCode, cmd.Err)
	}
	gone(t, child)
}

func lockLostQuietly(t *testing.T, c *Cluster, conn *Conn) {
	// The command ends by itself, with success, before anybody could have noticed.
	cmd := lockCommand(t, c, "quietly", `echo "$HOLDFAST_TOKEN" >$DIR/token
while [ ! -e $DIR/stop ]; do sleep 0.01; done
exit 0`, "--lease", "60s")
	steal(t, cmd, conn, "quietly")
	cmd.stop()
	if code := cmd.Wait(Patience); code != lostCode {
		t.Fatalf("code %d, want %d\n%s", code, lostCode, cmd.Err)
	}
}

func lockHangup(t *testing.T, c *Cluster, conn *Conn) {
	cmd := lockCommand(t, c, "hangup", `trap 'echo yes >$DIR/hup; exit 9' HUP
echo yes >$DIR/ready
while :; do sleep 0.05; done`)
	cmd.file("ready")
	cmd.Signal(syscall.SIGHUP)
	if code := cmd.Wait(Patience); code != 9 || !cmd.has("hup") {
		t.Fatalf("code %d, want the command's 9 after its SIGHUP\n%s", code, cmd.Err)
	}
	if s := conn.Query("hangup"); s.Token != 0 {
		t.Fatalf("after the hang-up the key says %+v", s)
	}
}

func lockGroup(t *testing.T, c *Cluster, conn *Conn) {
	cmd := lockCommand(t, c, "group", `sh -c 'sleep 1000 & echo $! >$DIR/grandchild; wait' & echo $! >$DIR/child
echo yes >$DIR/ready
wait`)
	child, grandchild := cmd.pid("child"), cmd.pid("grandchild")
	cmd.Signal(syscall.SIGTERM)
	if code := cmd.Wait(Patience); code != 128+int(syscall.SIGTERM) {
		t.Fatalf("code %d\n%s", code, cmd.Err)
	}
	gone(t, child)
	gone(t, grandchild)
	if s := conn.Query("group"); s.Token != 0 {
		t.Fatalf("after the command the key says %+v", s)
	}
}

func lockKilled(t *testing.T, c *Cluster, conn *Conn) {
	begin := time.Now()
	cmd := lockCommand(t, c, "killed", `echo $$ >$DIR/shell
sleep 1000 & echo $! >$DIR/child
wait`, "--lease", "5s")
	shell, child := cmd.pid("shell"), cmd.pid("child")
	if s := conn.Query("killed"); s.Token == 0 {
		t.Fatal("the lock is not held")
	}
	cmd.Kill()
	gone(t, shell)
	gone(t, child)
	if took := time.Since(begin); took > 6*time.Second {
		t.Fatalf("the command outlived its killed parent for %v, beyond the lease", took)
	}
}

func lockInterrupted(t *testing.T, c *Cluster, conn *Conn) {
	token := conn.Lock("interrupted", 60)
	cmd := lockCommand(t, c, "interrupted", `echo yes >$DIR/started`, "--wait", "60s")
	Eventually(t, func() error { return waiters(conn.Query("interrupted"), 1) })
	cmd.Signal(syscall.SIGINT)
	if code := cmd.Wait(Patience); code != 128+int(syscall.SIGINT) {
		t.Fatalf("code %d\n%s", code, cmd.Err)
	}
	Eventually(t, func() error { return waiters(conn.Query("interrupted"), 0) })
	conn.Release("interrupted", token)
	if s := conn.Query("interrupted"); s.Token != 0 || cmd.has("started") {
		t.Fatalf("after the interrupt: %+v, started: %v", s, cmd.has("started"))
	}
}

func lockTimeout(t *testing.T, c *Cluster, conn *Conn) {
	token := conn.Lock("timeout", 60)
	for _, wait := range []string{"0s", "1s"} {
		cmd := lockCommand(t, c, "timeout", `echo yes >$DIR/started`, "--wait", wait)
		if code := cmd.Wait(Patience); code != 75 || cmd.has("started") {
			t.Fatalf("code %d, started: %v\n%s", code, cmd.has("started"), cmd.Err)
		}
	}
	conn.Release("timeout", token)
}
