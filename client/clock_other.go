//go:build !linux

package client

import "time"

var processStart = time.Now()

// systemClock is Go's monotonic clock, which on some systems stands still while
// the machine is suspended: there, a lock may be found lost that much too late.
func systemClock() time.Duration { return time.Since(processStart) }
