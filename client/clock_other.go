//go:build !linux

package client

import "time"

// boot is Go's monotonic clock where no clock that counts suspension is known.
func boot() time.Duration { return time.Since(processStart) }
