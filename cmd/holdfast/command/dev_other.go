//go:build unix && !linux

package command

import "syscall"

// childAttributes puts a node into a process group of its own, out of reach of
// the terminal's Ctrl-C, which is ours to turn into an orderly stop.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
