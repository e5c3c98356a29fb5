//go:build unix

package supervise

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal, if there is one. All methods work on a
// nil terminal and do nothing.
//
// The command runs in a process group of its own, and only the foreground group
// may read from a terminal and gets its Ctrl-C. So an interactive command is
// given the foreground from the start, any other as soon as it wants to read
// (the pager of a pipeline that we are part of keeps it otherwise).
type terminal struct {
	file  *os.File
	eager bool // stdin and stdout are the terminal: the command is interactive
	given bool
	own   int // our process group
	modes *term.State
}

func openTerminal(stdin, stdout *os.File) *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{file: file, own: unix.Getpgrp()}
	t.eager = term.IsTerminal(int(stdin.Fd())) && term.IsTerminal(int(stdout.Fd()))
	t.modes, _ = term.GetState(int(file.Fd()))
	return t
}

func (t *terminal) close() {
	if t != nil {
		t.file.Close()
	}
}

// handOver tells whether the command is to start in the foreground.
func (t *terminal) handOver() bool { return t != nil && t.eager && t.foreground() == t.own }

// afterStart notes a hand-over. Taking the terminal back from the background
// would stop us with SIGTTOU; ignoring it must wait until the command has
// started, or it would be ignored there too.
func (t *terminal) afterStart() {
	if t == nil {
		return
	}
	t.given = t.eager
	signal.Ignore(unix.SIGTTOU)
}

// give puts a group into the foreground, if the foreground is ours to give.
func (t *terminal) give(group int) bool {
	if t == nil || t.foreground() != t.own {
		return false
	}
	t.given = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) == nil
	return t.given
}

// takeBack makes our group the foreground again after it was given away. With
// restore it also puts back the terminal's modes, for a command that was killed
// while it had the screen.
func (t *terminal) takeBack(restore bool) {
	if t == nil || !t.given {
		return
	}
	t.given = false
	if t.foreground() != t.own {
		_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, t.own)
	}
	if restore && t.modes != nil {
		_ = term.Restore(int(t.file.Fd()), t.modes)
	}
}

func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}
