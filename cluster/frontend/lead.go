package frontend

import (
	"time"

	"github.com/holdfast-lock/holdfast/wire"
)

const (
	// retryPause is how long nothing is begun of our own accord after the log
	// has turned an entry away.
	retryPause = 50 * time.Millisecond
	// hintPatience is how long acquires that waited in a queue stay unanswered
	// after the loss of leadership, so that Moved can name the next leader.
	hintPatience = 300 * time.Millisecond
	// sittingPoll is how often the next leader's address is asked for then.
	sittingPoll = 5 * time.Millisecond
)

// lead begins a term of leadership: epoch is the index of our Takeover, base
// the cluster time that its Apply returned.
func (q *sequencer) lead(epoch uint64, base time.Duration) {
	q.follow()
	q.answerSitting()
	q.leading, q.epoch = true, epoch
	q.clock.start(base, q.mono)
	q.stamped, q.retryAt = q.mono, 0
	q.slog.Info("serving clients", "epoch", epoch, "grants", q.table.Len())
}

// follow ends a term of leadership. What was only queued or built was never
// proposed, so it is answered Moved; what is in the log answers as it settles.
func (q *sequencer) follow() {
	if !q.leading {
		return
	}
	q.leading = false
	for i := range q.recs {
		q.undo(&q.recs[i], false)
	}
	q.ops, q.recs, q.expiring = nil, nil, 0
	for len(q.waits) > 0 {
		w := q.waits[0]
		q.dequeue(w)
		w.waitEnd = q.mono + min(hintPatience, q.cfg.CloseGrace/2) // its session may be closing
		q.sitting = append(q.sitting, w)
	}
	q.slog.Info("no longer serving clients", "epoch", q.epoch, "moved_waiters", len(q.sitting))
	clear(q.keys)
	q.flying, q.grants = 0, 0
}

// abdicate ends our leadership from this side.
func (q *sequencer) abdicate(why string, err error) {
	q.slog.Warn("giving up leadership", "epoch", q.epoch, "why", why, "err", err)
	q.follow()
	go q.log.Resign(why)
}

// moveSitting answers the acquires that waited when leadership was lost, once
// the next leader is known or patience ends.
func (q *sequencer) moveSitting() {
	if len(q.sitting) == 0 {
		return
	}
	if q.log.LeaderClientAddr() != "" || q.mono >= q.sitting[0].waitEnd {
		q.answerSitting()
	}
}

func (q *sequencer) answerSitting() {
	for _, w := range q.sitting {
		q.stats.moved.Add(1)
		q.reply(w.sess, &wire.Reply{Op: wire.OpMoved, Owner: w.owner, Text: []byte(q.log.LeaderClientAddr())}, grantRef{})
		w.sess.move()
	}
	q.sitting = nil
}
