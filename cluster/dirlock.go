package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const lockName = "LOCK"

// dirLock keeps a second process (or a second node of this one) out of the data
// directory. The file stays; the kernel drops the lock with the process.
type dirLock struct{ f *os.File }

func lockDir(dir string, wait time.Duration) (*dirLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	for end := time.Now().Add(wait); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &dirLock{f: f}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock the data directory %s: %w", dir, err)
		}
		if time.Now().After(end) {
			_ = f.Close()
			return nil, inUse(dir)
		}
		time.Sleep(20 * time.Millisecond) // a predecessor may still be going down
	}
}

func (l *dirLock) release() error { return l.f.Close() }
