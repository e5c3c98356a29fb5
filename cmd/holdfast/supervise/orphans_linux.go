package supervise

import "golang.org/x/sys/unix"

// adoptOrphans makes processes whose parent ends, among those that descend from
// us, our children. Called when a group is being ended, so that its dead are
// collected by groupGone at once; init may take its time, and in a container
// there may be none that does it.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
