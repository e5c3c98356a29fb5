package clustertest

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// TestLockCommandSurvivesElection: an election is no reason to end a command whose
// lock is still held (Consul 1162).
func TestLockCommandSurvivesElection(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	cmd := lockCommand(t, c, "job", untilStopped, "--lease", "6s")
	token := cmd.file("token")
	for range 2 {
		old := c.WaitLeader()
		old.Kill()
		c.WaitReady()
		if s := c.Query("job"); fmt.Sprint(s.Token) != token {
			t.Fatalf("after the election the lock of token %s says %+v", token, s)
		}
		// It is renewed at the new leader.
		low := c.Query("job").RemainingMS
		Eventually(t, func() error {
			s := c.Query("job")
			if s.RemainingMS > low {
				return nil
			}
			low = s.RemainingMS
			return fmt.Errorf("not renewed: %d ms remain of token %d", low, s.Token)
		})
		old.Start()
		c.WaitReady()
	}
	if cmd.Ended() {
		t.Fatalf("the command was ended with code %d\n%s", cmd.code(), cmd.Err)
	}
	cmd.stop()
	if code := cmd.Wait(Patience); code != 7 {
		t.Fatalf("code %d, the command's was 7\n%s", code, cmd.Err)
	}
	if s := c.Query("job"); s.Token != 0 {
		t.Fatalf("after the command the key says %+v", s)
	}
}

// TestLockCommandClusterGone: without a cluster the command goes on while the lease
// surely protects it, and is over before it does not (Consul 9788).
func TestLockCommandClusterGone(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	c := Start(t, 3)
	polite := lockCommand(t, c, "polite", `trap 'date +%s%N >$DIR/term; exit 0' TERM
echo $$ >$DIR/shell
while :; do sleep 0.02; done`, "--lease", "4s")
	stubborn := lockCommand(t, c, "stubborn", `trap '' TERM
sleep 1000 & echo $! >$DIR/child
echo $$ >$DIR/shell
while :; do sleep 0.02; done`, "--lease", "4s")
	pids := []int{polite.pid("shell"), stubborn.pid("shell"), stubborn.pid("child")}
	for _, n := range c.Nodes {
		n.Kill()
	}
	dead := time.Now() // nothing was renewed after this
	for _, pid := range pids {
		gone(t, pid)
		if took := time.Since(dead); took >= lease {
			t.Errorf("ended %v after the cluster: the lease of %v was over", took, lease)
		}
	}
	for _, cmd := range []*command{polite, stubborn} {
		if code := cmd.Wait(Patience); code != lostCode {
			t.Errorf("code %d, want %d\n%s", code, lostCode, cmd.Err)
		}
	}
	at, err := strconv.ParseInt(polite.file("term"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	// The last renewal was at most a third of the lease before the end, so there was
	// at least half of it left to ride out.
	if lasted := time.Unix(0, at).Sub(dead); lasted < lease/4 {
		t.Errorf("the command got SIGTERM %v after the cluster was gone: too soon with a lease of %v", lasted, lease)
	}
}

// TestWaitingCommandMoves: a command that waits in the queue of a leader which hands
// over goes to the next, and gets the lock there.
func TestWaitingCommandMoves(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	old := c.Leader()
	token := old.Dial().Lock("job", 60)
	cmd := c.CLI("acquire", "job", "--wait", "60s", "-o", "json")
	Eventually(t, func() error { return waiters(old.Dial().Query("job"), 1) })
	old.Stop()
	conn := c.WaitReady().Dial()
	Eventually(t, func() error { return waiters(conn.Query("job"), 1) })
	conn.Release("job", token)
	if code := cmd.Wait(Patience); code != 0 {
		t.Fatalf("code %d\n%s", code, cmd.Err)
	}
	s := conn.Query("job")
	if s.Token <= token || !cmd.Out.Has(`"`+fmt.Sprint(s.Token)+`"`) {
		t.Fatalf("the key says %+v, the command printed %s", s, cmd.Out)
	}
	// The other way: kill -9 of the leader leaves it unknown whether the waiter was
	// granted, and it says so.
	cmd = c.CLI("acquire", "job", "--wait", "60s")
	Eventually(t, func() error { return waiters(conn.Query("job"), 1) })
	c.WaitLeader().Kill()
	if code := cmd.Wait(Patience); code != 76 {
		t.Fatalf("code %d, want 76 for indeterminate\n%s", code, cmd.Err)
	}
}
