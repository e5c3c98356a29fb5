package fsm

// deadlineHeap is a 4-ary heap of all grants, earliest deadline first. Four
// children a node keep it shallow and its comparisons in few cache lines.
type deadlineHeap []*held

func (h deadlineHeap) less(i, j int) bool { return h[i].Deadline < h[j].Deadline }

func (h deadlineHeap) set(i int, g *held) {
	h[i] = g
	g.pos = i
}

func (h *deadlineHeap) push(g *held) {
	*h = append(*h, g)
	h.set(len(*h)-1, g)
	h.up(len(*h) - 1)
}

func (h *deadlineHeap) replace(old, g *held) {
	h.set(old.pos, g)
	h.fix(g.pos)
}

func (h *deadlineHeap) remove(g *held) {
	i, last := g.pos, len(*h)-1
	if i != last {
		h.set(i, (*h)[last])
	}
	(*h)[last] = nil
	*h = (*h)[:last]
	if i != last {
		h.fix(i)
	}
}

func (h *deadlineHeap) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h deadlineHeap) up(i int) {
	for i > 0 {
		p := (i - 1) / 4
		if !h.less(i, p) {
			return
		}
		a, b := h[i], h[p]
		h.set(p, a)
		h.set(i, b)
		i = p
	}
}

func (h deadlineHeap) down(i int) bool {
	start := i
	for {
		first, best := 4*i+1, i
		for c := first; c < min(first+4, len(h)); c++ {
			if h.less(c, best) {
				best = c
			}
		}
		if best == i {
			return i != start
		}
		a, b := h[i], h[best]
		h.set(best, a)
		h.set(i, b)
		i = best
	}
}

// due calls f for grants whose deadline is not after now, until f says stop.
// It visits no subtree whose root is later.
func (h deadlineHeap) due(i int, now int64, f func(*held) bool) bool {
	if i >= len(h) || int64(h[i].Deadline) > now {
		return true
	}
	if !f(h[i]) {
		return false
	}
	for c := 4*i + 1; c <= 4*i+4; c++ {
		if !h.due(c, now, f) {
			return false
		}
	}
	return true
}
