package frontend

import (
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/fsm"
	"github.com/holdfast-lock/holdfast/wire"
)

// fate is what the log said of one entry.
type fate struct {
	entry *entry
	res   fsm.Result
	err   error
}

// settle answers every request of an entry whose fate is known.
func (q *sequencer) settle(f fate) {
	current := q.leading && f.entry.epoch == q.epoch
	if current {
		q.flying--
	}
	switch {
	case f.err == nil && !f.res.Stale:
		q.executed(f.entry, f.res.Outcomes, current)
	case f.err == nil || errors.Is(f.err, fsm.ErrNotExecuted):
		q.notExecuted(f.entry, current)
		if current && f.res.Stale {
			q.abdicate("another leader has taken over", nil)
		}
	default:
		// The entry may take effect later or never. Nobody may be told either,
		// and nothing can be predicted from here on.
		for i := range f.entry.recs {
			q.unknown(&f.entry.recs[i])
		}
		if current {
			q.abdicate("the fate of a log entry is unknown", f.err)
		}
	}
}

// executed answers from the outcomes. The keys' predictions matter only while
// the entry is of the current term of leadership.
func (q *sequencer) executed(e *entry, outcomes []fsm.Outcome, current bool) {
	if len(outcomes) != len(e.recs) {
		q.slog.Error("an applied entry has another number of outcomes than operations", "outcomes", len(outcomes), "operations", len(e.recs))
		for i := range e.recs {
			q.unknown(&e.recs[i])
		}
		if current {
			q.abdicate("an entry's outcomes cannot be told apart", nil)
		}
		return
	}
	for i := range e.recs {
		r := &e.recs[i]
		if current && r.key != nil && !r.stray {
			r.key.inflight--
		}
		switch r.kind {
		case fsm.KindGrant:
			q.granted(e, r, outcomes[i], current)
		case fsm.KindRelease:
			q.verdict(r, outcomes[i].Code == fsm.Released, wire.OpReleased)
		case fsm.KindKeep:
			q.verdict(r, outcomes[i].Code == fsm.Kept, wire.OpKept)
		case fsm.KindExpire:
			if outcomes[i].Code == fsm.Expired {
				q.stats.expired.Add(1)
			}
		}
	}
	if !current {
		return
	}
	q.restAll(e)
}

// restAll lets the keys of a settled entry rest. Strays name theirs only: the
// state may have been dropped or made anew meanwhile, and a token that was
// guessed right has made the prediction wrong.
func (q *sequencer) restAll(e *entry) {
	for i := range e.recs {
		if r := &e.recs[i]; r.key != nil {
			if k := q.keys[r.key.key]; k != nil {
				q.rest(k)
			}
		}
	}
}

// granted delivers the outcome of one proposed acquire.
func (q *sequencer) granted(e *entry, r *record, o fsm.Outcome, current bool) {
	w := r.wait
	if current {
		q.grants--
		if r.key.holder == granting {
			r.key.holder = o.Token // of the new grant, or of who holds it instead
		}
	}
	if o.Code == fsm.Granted {
		q.stats.granted.Add(1)
		ref := grantRef{r.key.key, o.Token}
		waited := max(e.sealed-w.readAt, 0) / time.Millisecond
		q.stats.waited.Add(uint64(waited))
		reply := wire.Reply{Op: wire.OpAcquired, Owner: w.owner, Token: o.Token, WaitedMS: uint32(waited)}
		if !q.reply(w.sess, &reply, ref) {
			q.giveBack(ref)
		}
		return
	}
	// The table knew of a holder that the prediction did not. The acquire goes
	// back where it was: no one behind it has been served meanwhile.
	switch {
	case w.sess.closed:
		w.sess.giveRoom(1)
	case w.waitEnd <= q.mono:
		q.answer(w, wire.OpTimeout)
	case !current:
		q.moved(w.sess, w.owner)
	default:
		q.enqueue(w, true)
	}
}

// verdict answers a release or a keep; one of our own needs no answer.
func (q *sequencer) verdict(r *record, done bool, op wire.Op) {
	if done && r.kind == fsm.KindRelease {
		q.stats.released.Add(1)
	} else if done {
		q.stats.kept.Add(1)
	}
	if r.sess == nil {
		return
	}
	if !done {
		q.stats.notHeld.Add(1)
		op = wire.OpNotHeld
	}
	q.reply(r.sess, &wire.Reply{Op: op, Owner: r.owner}, grantRef{})
}

// notExecuted answers Moved to everything in an entry that certainly took no
// effect.
func (q *sequencer) notExecuted(e *entry, current bool) {
	for i := range e.recs {
		r := &e.recs[i]
		q.undo(r, current)
		if current && r.key != nil && !r.stray {
			r.key.inflight--
		}
	}
	if !current {
		return
	}
	q.retryAt = q.mono + retryPause
	q.restAll(e)
}

// undo answers Moved to what one record of an unexecuted operation was for.
func (q *sequencer) undo(r *record, current bool) {
	if r.wait != nil {
		if current {
			q.grants--
		}
		q.moved(r.wait.sess, r.wait.owner)
	} else if r.sess != nil {
		q.moved(r.sess, r.owner)
	}
}

// unknown closes the session of a request of which nothing can be said.
func (q *sequencer) unknown(r *record) {
	s := r.sess
	if r.wait != nil {
		s = r.wait.sess
	}
	if s != nil {
		q.stats.unknown.Add(1)
		s.giveRoom(1)
		s.abort()
	}
}
