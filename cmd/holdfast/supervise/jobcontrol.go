//go:build unix

package supervise

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// notStopped is how long after asking to be stopped we conclude that we were not.
const notStopped = 100 * time.Millisecond

// changed takes in that the child ended or was stopped.
func (r *run) changed(status unix.WaitStatus) {
	if !status.Stopped() {
		r.exited, r.status = true, status
		return
	}
	if r.ending {
		r.child.signal(unix.SIGCONT)
		return
	}
	switch status.StopSignal() {
	case unix.SIGTTIN, unix.SIGTTOU:
		// It wants the terminal. If that is ours to give, it gets it.
		if r.tty.give(r.child.group) {
			r.child.signal(unix.SIGCONT)
			return
		}
	case unix.SIGTSTP:
	default:
		return // stopped by hand; whoever did it will let it go on
	}
	// Stop like any job, with what else is in our pipeline, so that the shell
	// sees it. While we are stopped nothing renews the lock. Where no shell
	// waits for us the kernel discards the signal; resume is then called soon.
	r.tty.takeBack(false)
	r.stoppedAt = time.Now()
	_ = unix.Kill(0, unix.SIGTSTP)
}

// resume lets the command go on after we were stopped together, unless the
// lock's time ran out meanwhile: then the next look ends it.
func (r *run) resume() {
	if r.stoppedAt.IsZero() {
		return
	}
	r.stoppedAt = time.Time{}
	if r.isLost() || r.lock.Remaining() <= r.lead {
		return
	}
	r.tty.give(r.child.group)
	r.child.signal(unix.SIGCONT)
}

// forward passes one of our signals on to the group.
func (r *run) forward(sig os.Signal) {
	switch number, ok := sig.(syscall.Signal); {
	case !ok:
	case number == unix.SIGCONT:
		r.resume()
	default:
		r.child.signal(number)
	}
}
