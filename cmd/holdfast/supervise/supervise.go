//go:build unix

// Package supervise runs a command for as long as a lock is held, and ends it
// before the lock can be somebody else's.
//
// The command gets a process group of its own, and that group is what is
// signalled: never only the shell at its head.
package supervise

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is a held lock as the supervisor sees it. Its methods are called from
// one goroutine, often, and must not block.
type Lock interface {
	// Remaining is the time until the safe end of the lease: until then nobody
	// else can have been granted the key. Zero or less once it has passed.
	Remaining() time.Duration
	// Lost is closed once the lock is known to be lost.
	Lost() <-chan struct{}
}

// Command is what to run, and how.
type Command struct {
	Path  string   // executable, already looked up
	Args  []string // with the name it is called by first
	Env   []string
	Stdin *os.File // passed on as it is, like the two outputs
	Out   *os.File
	Err   *os.File

	Lease     time.Duration    // length of the lease, from which the warning time follows
	KillAfter time.Duration    // longest time between SIGTERM and SIGKILL
	Signals   <-chan os.Signal // what arrived for us; see Caught
	Leash     []string         // command line that runs Leash in a process of its own; nil for none
	Log       func(format string, args ...any)
}

// Result tells how a run ended.
type Result struct {
	// Interrupt is the signal because of which the command was never started.
	Interrupt syscall.Signal
	// Lost says that the lock was lost, or so close to its end that the command
	// had to be ended for it.
	Lost bool
	// Started says that the command ran; Code is its exit code then, 128+n if
	// signal n ended it.
	Started bool
	Code    int
	// Remains says that some process has not ended even after SIGKILL, because
	// it hangs in the kernel.
	Remains bool
}

// afterKill bounds the wait for processes to vanish once they got SIGKILL: one
// that hangs in the kernel does not hold us for ever.
const afterKill = 2 * time.Second

// lookEvery bounds the time between two looks at the lock. A machine that wakes
// from suspension has timers that are late by the whole sleep; the lock's own
// reckoning of time is not.
const lookEvery = 250 * time.Millisecond

// Lead is how long before the safe end the command gets its SIGTERM, and Margin
// how long before the end SIGKILL follows at the latest. A sixth of the lease
// leaves a holder that renews every third more than a third of it to ride out a
// cluster without a leader.
func Lead(lease, killAfter time.Duration) (lead, margin time.Duration) {
	margin = min(max(lease/20, 50*time.Millisecond), 500*time.Millisecond)
	return min(killAfter, lease/6) + margin, margin
}

// Run starts the command unless a signal has come or the lock is gone, and
// returns when it has ended. The error is non-nil only when it could not start.
func Run(cmd Command, lock Lock) (Result, error) {
	r := &run{cmd: cmd, lock: lock, lost: lock.Lost()}
	r.lead, r.margin = Lead(cmd.Lease, cmd.KillAfter)

	r.tty = openTerminal(cmd.Stdin, cmd.Out)
	defer r.tty.close()
	var err error
	if r.leash, err = startLeash(cmd.Leash, r.lead-r.margin); err != nil {
		return Result{}, fmt.Errorf("start the process that watches over the command: %w", err)
	}
	defer r.leash.close()

	// The last look before the start: what came in the meantime counts.
	if sig := pendingStop(cmd.Signals); sig != 0 {
		return Result{Interrupt: sig}, nil
	}
	if r.isLost() || lock.Remaining() <= r.lead {
		return Result{Lost: true}, nil
	}
	r.child, err = startChild(cmd, r.tty, r.leash.group())
	if err != nil {
		return Result{}, err
	}
	result := r.loop()
	r.tty.takeBack(r.status.Signaled())
	return result, nil
}

// run is the state of one supervised command, owned by the goroutine in Run.
type run struct {
	cmd    Command
	lock   Lock
	lost   <-chan struct{}
	child  *child
	tty    *terminal
	leash  *leash
	lead   time.Duration
	margin time.Duration

	ending   bool      // the group has got its SIGTERM from us
	termAt   time.Time // when
	killedAt time.Time // when it got SIGKILL; zero before
	exited   bool      // the child itself has ended
	status   unix.WaitStatus
	// stoppedAt is when it was stopped together with ourselves, by job control.
	stoppedAt time.Time
}

func (r *run) loop() Result {
	timer := time.NewTimer(0)
	defer timer.Stop()
	lost := r.lost
	for {
		select {
		case status := <-r.child.changes:
			r.changed(status)
		case sig := <-r.cmd.Signals:
			r.forward(sig)
		case <-lost:
			lost = nil
			r.end("the lock was lost")
		case <-timer.C:
		}
		if done, result := r.look(); done {
			return result
		}
		timer.Reset(r.pause())
	}
}

// look compares the lock with the clock and acts; it tells when all is over.
func (r *run) look() (bool, Result) {
	remaining := r.lock.Remaining()
	if r.exited && !r.ending {
		if !r.isLost() && remaining > 0 {
			return true, Result{Started: true, Code: r.code()}
		}
		r.end("the lock was lost before the command ended")
	}
	if !r.ending && remaining <= r.lead {
		r.end("the lock could not be renewed and its lease is about to end")
	}
	now := time.Now()
	if !r.stoppedAt.IsZero() && now.Sub(r.stoppedAt) > notStopped {
		r.resume()
	}
	if !r.ending {
		return false, Result{}
	}
	if r.killedAt.IsZero() && (now.Sub(r.termAt) >= r.cmd.KillAfter || remaining <= r.margin) {
		r.killedAt = now
		r.child.signal(unix.SIGKILL)
	}
	gone := false
	if r.exited {
		r.leash.close() // or it would be one that remains
		gone = r.child.groupGone()
	}
	if gone || !r.killedAt.IsZero() && now.Sub(r.killedAt) > afterKill {
		if !gone {
			r.cmd.Log("some process of the command has not ended %v after SIGKILL", afterKill)
		}
		return true, Result{Started: true, Lost: true, Code: r.code(), Remains: !gone}
	}
	return false, Result{}
}

// pause is how long to wait for events before the next look.
func (r *run) pause() time.Duration {
	if r.ending {
		return 10 * time.Millisecond
	}
	return min(max(r.lock.Remaining()-r.lead, time.Millisecond), lookEvery)
}

// end begins the end of the whole group.
func (r *run) end(why string) {
	if r.ending {
		return
	}
	r.ending, r.termAt = true, time.Now()
	r.cmd.Log("%s: ending the command", why)
	adoptOrphans()
	r.child.signal(unix.SIGTERM)
	r.child.signal(unix.SIGCONT) // a stopped process acts on SIGTERM only when it goes on
}

func (r *run) isLost() bool {
	select {
	case <-r.lost:
		return true
	default:
		return false
	}
}

func (r *run) code() int {
	switch {
	case !r.exited: // it survived SIGKILL, hanging in the kernel
		return 128 + int(unix.SIGKILL)
	case r.status.Signaled():
		return 128 + int(r.status.Signal())
	default:
		return r.status.ExitStatus()
	}
}

// pendingStop looks for a signal that asks us to end, without waiting.
func pendingStop(signals <-chan os.Signal) syscall.Signal {
	for {
		select {
		case sig := <-signals:
			if number, ok := sig.(syscall.Signal); ok && Stops(number) {
				return number
			}
		default:
			return 0
		}
	}
}
