//go:build unix

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/client"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/supervise"
)

// What the locked command finds in its environment.
const (
	envKey   = settings.Prefix + "KEY"
	envToken = settings.Prefix + "TOKEN"
	envLease = settings.Prefix + "LEASE"
)

// heldLock is a lock while its command runs.
type heldLock interface {
	supervise.Lock
	Token() uint64
	// Release gives the lock back; the error is client.ErrNotHeld, for
	// errors.Is, when it was lost before.
	Release(ctx context.Context) error
}

// locker acquires locks; a test puts its own in place of the client.
type locker interface {
	Acquire(ctx context.Context, key string, wait, lease time.Duration) (heldLock, error)
	Close()
}

// lockConfig is one call of "holdfast lock".
type lockConfig struct {
	key       string
	argv      []string
	wait      time.Duration
	lease     time.Duration
	killAfter time.Duration
}

func (a *app) newLock() *cobra.Command {
	cfg := lockConfig{wait: 30 * time.Second, lease: 15 * time.Second, killAfter: 10 * time.Second}
	cmd := &cobra.Command{
		Use:     "lock KEY [flags] -- COMMAND ARG...",
		GroupID: "lock",
		Short:   "Run a command while holding a lock",
		Long: `Wait for the lock, run the command while renewing the lease, and release the lock
when the command ends. Its exit code is passed on.

The command finds HOLDFAST_KEY, HOLDFAST_TOKEN (the fencing token: hand it to what
the lock protects) and HOLDFAST_LEASE (in seconds) in its environment. It runs in a
process group of its own, and signals are passed on to the whole group. An interrupt
that comes before the command has started means that it is never started.

Should the lock be lost, the group gets SIGTERM, then SIGKILL after --kill-after. If
the lease can only not be renewed, because the cluster has no leader for a moment,
the command goes on until the end of the lease comes near: SIGTERM comes --kill-after
or a sixth of the lease before that end, whichever is less, and SIGKILL just before
it. The exit code is 74 then, whatever the command's own. If this process is itself
killed, its command is ended too, SIGKILL following SIGTERM within the same time.

A process that the command leaves running in the background when it ends goes on
without the lock: let the command wait for it. One that moves to another session
(setsid) is out of reach of the signals as well.`,
		Example: `  holdfast lock nightly-report -- ./report.sh
  holdfast lock db-migration --wait 0s -- sh -c 'migrate --fence $HOLDFAST_TOKEN'`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case len(args) == 0 || dash == 0:
				return usagef("KEY is missing; usage: %s", cmd.UseLine())
			case dash < 0 && len(args) > 1 || dash > 1:
				return usagef("put \"--\" between KEY and the command; usage: %s", cmd.UseLine())
			case len(args) == 1:
				return usagef("the command is missing; usage: %s", cmd.UseLine())
			}
			return nil
		},
	}
	endpoints, shared := a.endpointsFlag(cmd)
	t := settings.NewLocal()
	t.Duration(&cfg.wait, "wait", "How long to wait for the lock, up to 255s; 0s tries once")
	t.Duration(&cfg.lease, "lease", "How long the lock outlives this process should it vanish, in whole seconds from 1s to 255s")
	t.Duration(&cfg.killAfter, "kill-after", "Time between SIGTERM and SIGKILL when the command has to end")
	a.bind(cmd, t)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.load(shared); err != nil {
			return err
		}
		cfg.key, cfg.argv = args[0], args[1:]
		return a.lock(cmd.Context(), cfg, *endpoints)
	}
	return cmd
}

func (a *app) lock(ctx context.Context, cfg lockConfig, endpoints []string) error {
	if err := errors.Join(checkWait(cfg.wait), checkLease(cfg.lease)); err != nil {
		return err
	}
	path, err := supervise.Find(cfg.argv[0])
	switch {
	case errors.Is(err, supervise.ErrNotFound):
		return failf(ExitNotFound, "%s: %v", cfg.argv[0], err)
	case err != nil:
		return failf(ExitCannotRun, "%s: %v", cfg.argv[0], err)
	}
	// Before anything is asked of the cluster: no interrupt may be missed.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, supervise.Caught()...)
	defer signal.Stop(signals)

	locks, err := a.openLocker(ctx, endpoints)
	if err != nil {
		return err
	}
	defer locks.Close()
	lock, err := acquireUnlessStopped(ctx, locks, cfg, signals)
	if err != nil {
		return err
	}
	result, err := supervise.Run(supervise.Command{
		Path: path, Args: cfg.argv, Env: a.lockedEnviron(cfg, lock.Token(), endpoints),
		Stdin: a.In, Out: fileOr(a.Out, os.Stdout), Err: fileOr(a.Err, os.Stderr),
		Lease: cfg.lease, KillAfter: cfg.killAfter, Signals: signals,
		Leash: a.leash, Log: func(format string, args ...any) {
			fmt.Fprintf(a.Err, "holdfast: %s: %s\n", cfg.key, fmt.Sprintf(format, args...))
		},
	}, lock)
	return a.finishLock(cfg, lock, result, err)
}

// acquireUnlessStopped waits for the lock, or for a signal that asks to stop.
func acquireUnlessStopped(ctx context.Context, locks locker, cfg lockConfig, signals <-chan os.Signal) (heldLock, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type acquired struct {
		lock heldLock
		err  error
	}
	done := make(chan acquired, 1)
	go func() {
		lock, err := locks.Acquire(ctx, cfg.key, cfg.wait, cfg.lease)
		done <- acquired{lock, err}
	}()
	var stop syscall.Signal
	for {
		select {
		case got := <-done:
			if stop == 0 {
				return got.lock, got.err
			}
			if got.err == nil {
				giveBack(got.lock)
			}
			return nil, &exitError{code: ExitSignal + int(stop)}
		case sig := <-signals:
			number, ok := sig.(syscall.Signal)
			if !ok || !supervise.Stops(number) {
				continue
			}
			if stop != 0 { // asked twice: do not even wait for the answer
				return nil, &exitError{code: ExitSignal + int(number)}
			}
			stop = number
			cancel()
		}
	}
}

// finishLock releases the lock and decides the exit code.
func (a *app) finishLock(cfg lockConfig, lock heldLock, result supervise.Result, err error) error {
	switch {
	case err != nil:
		giveBack(lock)
		return failf(ExitCannotRun, "%v", err)
	case result.Interrupt != 0:
		giveBack(lock)
		return &exitError{code: ExitSignal + int(result.Interrupt)}
	case result.Lost:
		if !result.Remains { // otherwise the lease has to protect what still runs
			giveBack(lock)
		}
		if !result.Started {
			return failf(ExitLost, "%s: the lock was lost before the command could be started", cfg.key)
		}
		return failf(ExitLost, "%s: the lock was lost while the command ran", cfg.key)
	}
	a.code = result.Code
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	switch err := lock.Release(ctx); {
	case errors.Is(err, client.ErrNotHeld):
		return failf(ExitLost, "%s: the lock was lost while the command ran", cfg.key)
	case err != nil:
		// It was held to the end; the lease takes the key back.
		fmt.Fprintf(a.Err, "holdfast: %s: could not be released and stays taken until its lease ends, in %v at most: %s\n", cfg.key, cfg.lease, oneLine(err))
	}
	return nil
}

// releaseTimeout bounds the release at the end; the lease does the rest.
const releaseTimeout = 5 * time.Second

// giveBack releases a lock that nothing depends on any more, if that is quick.
func giveBack(lock heldLock) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = lock.Release(ctx)
}

// lockedEnviron is our environment with what the command is told.
func (a *app) lockedEnviron(cfg lockConfig, token uint64, endpoints []string) []string {
	told := [][2]string{
		{envKey, cfg.key},
		{envToken, strconv.FormatUint(token, 10)},
		{envLease, strconv.Itoa(int(cfg.lease / time.Second))},
		{settings.Prefix + "ENDPOINTS", strings.Join(endpoints, ",")},
	}
	var env []string
	for _, pair := range a.environ {
		name, _, _ := strings.Cut(pair, "=")
		if name != envKey && name != envToken && name != envLease && name != settings.Prefix+"ENDPOINTS" {
			env = append(env, pair)
		}
	}
	for _, pair := range told {
		env = append(env, pair[0]+"="+pair[1])
	}
	return env
}

func fileOr(w io.Writer, file *os.File) *os.File {
	if f, ok := w.(*os.File); ok {
		return f
	}
	return file
}

// checkWait and checkLease refuse what the protocol cannot say.
func checkWait(wait time.Duration) error {
	if wait > 255*time.Second {
		return usagef("--wait %v: use 0s to 255s", wait)
	}
	return nil
}

func checkLease(lease time.Duration) error {
	if lease < time.Second || lease > 255*time.Second || lease%time.Second != 0 {
		return usagef("--lease %v: use whole seconds from 1s to 255s", lease)
	}
	return nil
}
