package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// systemClock reads CLOCK_BOOTTIME. Go's own monotonic clock stands still while
// a machine is suspended, and a holder that slept past the end of its lease must
// find it over when it wakes.
func systemClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Every kernel since 2.6.39 has it. Mixing two clocks would be worse
		// than stopping.
		panic("holdfast client: CLOCK_BOOTTIME cannot be read: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
