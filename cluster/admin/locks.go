package admin

import (
	"container/heap"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/cluster"
	"github.com/holdfast-lock/holdfast/fsm"
)

// Bounds of one page of locks.
const (
	defaultLimit = 100
	maxLimit     = 10_000
)

// LockList is the body of /v1/locks: the first locks by key, of those asked for.
type LockList struct {
	Node string `json:"node"`
	// Stale says that this node does not lead: what follows is what it has
	// applied so far, and Waiters is unknown. The leader's answer is at
	// LeaderAdminAddr, where that is known.
	Stale           bool   `json:"stale"`
	LeaderAdminAddr string `json:"leader_admin_addr"`
	AppliedIndex    uint64 `json:"applied_index"`
	ClusterClockMS  int64  `json:"cluster_clock_ms"`
	Total           int    `json:"total"` // locks that match, beyond the limit too
	Truncated       bool   `json:"truncated"`
	Locks           []Lock `json:"locks"`
}

// Lock is one held key. Token and owner are strings because JSON numbers are not
// exact beyond 2^53 in every reader.
type Lock struct {
	Key         string `json:"key"`
	Token       string `json:"token"`
	Owner       string `json:"owner"`
	HolderLabel string `json:"holder_label"` // what the holder's session said of itself; may be empty
	HolderAddr  string `json:"holder_addr"`
	LeaseMS     int64  `json:"lease_ms"`
	RemainingMS int64  `json:"remaining_ms"` // rounded up, by the applied cluster clock
	Waiters     *int   `json:"waiters"`      // null where unknown
}

func (h *handler) locks(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	prefix, after := query.Get("prefix"), query.Get("after")
	for name, text := range map[string]string{"prefix": prefix, "after": after} {
		if !utf8.ValidString(text) || len(text) > fsm.MaxKeyLen {
			fail(w, http.StatusBadRequest, "the parameter %s must be UTF-8 of at most %d bytes, as keys are", name, fsm.MaxKeyLen)
			return
		}
	}
	limit := defaultLimit
	if text := query.Get("limit"); query.Has("limit") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxLimit {
			fail(w, http.StatusBadRequest, "the parameter limit is %s: give a number from 1 to %d", printable(text), maxLimit)
			return
		}
		limit = n
	}
	select {
	case h.scan <- struct{}{}:
		defer func() { <-h.scan }()
	case <-r.Context().Done():
		return
	case <-time.After(writeTimeout / 2):
		fail(w, http.StatusServiceUnavailable, "other requests for locks are still being answered: try again")
		return
	}
	status := h.cfg.Node.Status() // before the table is looked at: "not stale" is true of a state at least as old
	view := h.cfg.Locks.Freeze()
	defer view.Release()
	grants, total := firstGrants(view, prefix, after, limit)
	list := LockList{
		Node: status.NodeID, Stale: status.Role != cluster.RoleLeader, LeaderAdminAddr: status.LeaderAdminAddr,
		AppliedIndex: view.Index(), ClusterClockMS: view.Clock().Milliseconds(),
		Total: total, Truncated: total > len(grants), Locks: make([]Lock, 0, len(grants)),
	}
	waiters := h.waiters(grants, list.Stale)
	for i, g := range grants {
		l := Lock{
			Key: g.Key, Token: strconv.FormatUint(g.Token, 10), Owner: strconv.FormatUint(g.Owner, 10),
			HolderLabel: g.Label, HolderAddr: g.Addr,
			LeaseMS: g.Lease.Milliseconds(), RemainingMS: ceilMS(g.Deadline - view.Clock()),
		}
		if waiters != nil {
			l.Waiters = &waiters[i]
		}
		list.Locks = append(list.Locks, l)
	}
	writeJSON(w, http.StatusOK, list)
}

// waiters asks the front end who waits; nil if that is not known.
func (h *handler) waiters(grants []fsm.Grant, stale bool) []int {
	if stale || h.cfg.Clients.Alive(aliveWait) != nil {
		return nil
	}
	keys := make([]string, len(grants))
	for i, g := range grants {
		keys[i] = g.Key
	}
	return h.cfg.Clients.Waiters(keys)
}

// firstGrants returns the first limit grants by key whose lease goes on, of those
// with the prefix and after the given key, and how many there are in all. It
// holds no more than limit at a time.
func firstGrants(view *fsm.Frozen, prefix, after string, limit int) (grants []fsm.Grant, total int) {
	var first lastOnTop
	view.Grants(func(g fsm.Grant) bool {
		switch {
		case !strings.HasPrefix(g.Key, prefix), g.Key <= after, g.Deadline <= view.Clock():
			return true
		}
		total++
		switch {
		case len(first) < limit:
			heap.Push(&first, g)
		case g.Key < first[0].Key:
			first[0] = g
			heap.Fix(&first, 0)
		}
		return true
	})
	slices.SortFunc(first, func(a, b fsm.Grant) int { return strings.Compare(a.Key, b.Key) })
	return first, total
}

// lastOnTop is a heap with the greatest key on top: the one to give up for a
// smaller.
type lastOnTop []fsm.Grant

func (h lastOnTop) Len() int           { return len(h) }
func (h lastOnTop) Less(i, j int) bool { return h[i].Key > h[j].Key }
func (h lastOnTop) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lastOnTop) Push(x any)        { *h = append(*h, x.(fsm.Grant)) }
func (h *lastOnTop) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func ceilMS(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
