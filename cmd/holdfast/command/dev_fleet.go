package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// devNode is one "holdfast serve" process of a local cluster.
type devNode struct {
	id      string
	client  string
	admin   string
	argv    []string
	environ []string
	logPath string

	cmd   *exec.Cmd // of the present or last run
	began time.Time // when that was started
	short int       // runs in a row that ended soon
}

// pause is how long to wait before the node is started again: longer with every
// run that ended soon after its start.
func (n *devNode) pause() time.Duration {
	if time.Since(n.began) > time.Minute {
		n.short = 0
	}
	n.short++
	return min(500*time.Millisecond<<min(n.short, 5), 15*time.Second)
}

func newDevNode(exe, dir string, cfg devConfig, i int) *devNode {
	peers := devAddrs(cfg.basePort, 1)
	list := make([]string, devNodes)
	for j := range list {
		list[j] = fmt.Sprintf("n%d=%s", j+1, peers[j])
	}
	n := &devNode{
		id:     "n" + strconv.Itoa(i+1),
		client: devAddrs(cfg.basePort, 0)[i],
		admin:  devAddrs(cfg.basePort, 2)[i],
	}
	home := filepath.Join(dir, n.id)
	n.logPath = filepath.Join(home, "log")
	n.argv = append([]string{exe, "serve",
		"--node-id", n.id, "--data-dir", filepath.Join(home, "data"), "--cluster-name", "dev",
		"--client-addr", n.client, "--advertise-client-addr", n.client,
		"--peer-addr", peers[i], "--advertise-peer-addr", peers[i],
		"--admin-addr", n.admin, "--advertise-admin-addr", n.admin,
		"--peers", strings.Join(list, ","),
		"--shutdown-grace", max(cfg.grace-cfg.grace/5, time.Second).String(),
	}, cfg.extra...)
	return n
}

func (n *devNode) describe() string {
	return fmt.Sprintf("%s  pid %-7d client %s  admin http://%s  log %s", n.id, n.cmd.Process.Pid, n.client, n.admin, n.logPath)
}

// fleetEnd reports the end of a node, and what is done about it, in one line.
type fleetEnd struct{ text string }

// fleet starts, watches and stops the nodes.
type fleet struct {
	restart bool
	ends    chan fleetEnd
	starts  chan func()   // run on the goroutine that starts processes
	quit    chan struct{} // closed when nothing more is to be started
	gone    chan struct{} // closed when every process has ended
	watches sync.WaitGroup

	mu       sync.Mutex
	nodes    []*devNode
	running  map[*devNode]bool
	stopping bool
}

func newFleet(restart bool) *fleet {
	f := &fleet{
		restart: restart, ends: make(chan fleetEnd, 16), starts: make(chan func()),
		quit: make(chan struct{}), gone: make(chan struct{}), running: make(map[*devNode]bool),
	}
	go f.starter()
	return f
}

// starter starts all processes from one thread that lives as long as the fleet:
// the kernel sends the parent-death signal when the *thread* that started a
// process ends, so it must not end before the last of them.
func (f *fleet) starter() {
	runtime.LockOSThread()
	for {
		select {
		case start := <-f.starts:
			start()
		case <-f.gone:
			return
		}
	}
}

// start runs the node's process and watches it.
func (f *fleet) start(n *devNode) error {
	if err := os.MkdirAll(filepath.Dir(n.logPath), 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(n.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping {
		return nil
	}
	cmd := exec.Command(n.argv[0], n.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = n.environ, log, log
	cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	select {
	case f.starts <- func() { started <- cmd.Start() }:
	case <-f.quit:
		return nil
	}
	if err := <-started; err != nil {
		return err
	}
	if n.cmd == nil {
		f.nodes = append(f.nodes, n)
	}
	n.cmd, n.began = cmd, time.Now()
	f.running[n] = true
	f.watches.Go(func() { f.watch(n, cmd) })
	return nil
}

// watch waits for the end of one run, reports it, and starts the next if that
// is wanted.
func (f *fleet) watch(n *devNode, cmd *exec.Cmd) {
	_ = cmd.Wait()
	f.mu.Lock()
	delete(f.running, n)
	stopping := f.stopping
	f.mu.Unlock()
	if stopping {
		return
	}
	text := fmt.Sprintf("%s (pid %d) ended: %v", n.id, cmd.Process.Pid, cmd.ProcessState)
	if cmd.ProcessState.ExitCode() > 0 {
		text += lastLine(n.logPath)
	}
	if !f.restart {
		f.report(text + "; it is left dead (--restart would start it again)")
		return
	}
	pause := n.pause()
	f.report(fmt.Sprintf("%s; it is started again in %v", text, pause))
	select {
	case <-time.After(pause):
	case <-f.quit:
		return
	}
	if err := f.start(n); err != nil {
		f.report(fmt.Sprintf("%s cannot be started again: %v", n.id, err))
	}
}

func (f *fleet) report(text string) {
	select {
	case f.ends <- fleetEnd{text}:
	case <-f.quit:
	}
}

func (f *fleet) alive() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running)
}

func (f *fleet) adminAddrs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var addrs []string
	for _, n := range f.nodes {
		addrs = append(addrs, n.admin)
	}
	return addrs
}

// stop ends every node: SIGTERM to all, SIGKILL after the grace or at once when
// hurry says something.
func (f *fleet) stop(grace time.Duration, hurry <-chan os.Signal) {
	f.mu.Lock()
	f.stopping = true
	f.signalAll(syscall.SIGTERM)
	f.mu.Unlock()
	close(f.quit)
	go func() { f.watches.Wait(); close(f.gone) }()
	select {
	case <-f.gone:
		return
	case <-time.After(grace):
	case <-hurry:
	}
	f.mu.Lock()
	f.signalAll(syscall.SIGKILL)
	f.mu.Unlock()
	<-f.gone
}

// signalAll signals the group of every running node; f.mu is held.
func (f *fleet) signalAll(sig syscall.Signal) {
	for n := range f.running {
		_ = syscall.Kill(-n.cmd.Process.Pid, sig)
	}
}

// awaitLeader asks the nodes until one of them says that it leads.
func awaitLeader(ctx context.Context, admins []string, leads chan<- string) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		for _, st := range fetchStatuses(ctx, admins, time.Second) {
			if st.serves() {
				leads <- st.Node
				return
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// lastLine quotes the last line of a log, where a node says why it ended.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const tail = 2048
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(size-tail, 0), io.SeekStart)
	}
	text, _ := io.ReadAll(io.LimitReader(f, tail))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}
