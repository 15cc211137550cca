package sqlstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"time"

	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/schema"
)

// RunRewriter replaces the rows of events of one run, and what is made of them, in a transaction.
type RunRewriter interface {
	Event(ctx context.Context, e *persister.Rewritten) error
	// Finish is called after the last event. text returns another content of texts of which the events are not known any more.
	Finish(ctx context.Context, text func(string) string) error
}

// rewrittenRun is what a rewriting reads of the row of a run.
type rewrittenRun struct {
	place     persister.Place
	state     schema.RunState
	held      bool
	reason    string
	reasonSeq schema.Seq
	stop      string
	turnSeq   schema.Seq
	naming    persister.Naming
	session   string
	asks      string
}

// Rewrite replaces events of a run, and all that is made of them, in one transaction, which appends to the run wait for. fn
// calls event with each of them that is in rows, and returns what the run's row is to say. The error wraps
// persister.ErrHeld when the run is under a hold and something would change, and persister.ErrMoved when it is not any more as it was looked at; then
// nothing has changed. The calls of fn use other connections.
func (s *Store) Rewrite(ctx context.Context, w persister.Rewriting,
	fn func(event func(*persister.Rewritten) error) (persister.RunTexts, error)) error {
	err := s.db.Within(ctx, EveryTenant, func(tx Tx) error {
		if err := lock(ctx, tx, s.d.Marks); err != nil {
			return err
		}
		run, err := s.lockRun(ctx, tx, &w)
		if err != nil {
			return err
		}
		rewriter, err := s.db.Rewriter(ctx, tx, w.Key, w.Was.Day)
		if err != nil {
			return err
		}
		changed := w.URI != ""
		texts, err := fn(func(e *persister.Rewritten) error {
			changed = true
			return rewriter.Event(ctx, e)
		})
		if err == nil {
			err = rewriter.Finish(ctx, texts.Text)
		}
		if err != nil {
			return err
		}
		was := run
		run.apply(&texts)
		switch {
		case run == was && !changed:
			return nil
		case run.held && !w.HeldToo:
			return persister.ErrHeld
		}
		return s.rewriteRun(ctx, tx, &w, &run)
	})
	if err != nil {
		return s.wrap(err, "rewrite run %s", w.Key)
	}
	return nil
}

// lockRun reads the row of a run and locks it.
func (s *Store) lockRun(ctx context.Context, tx Tx, w *persister.Rewriting) (r rewrittenRun, err error) {
	p := &r.place
	found, err := tx.Row(ctx, []any{dayIn{&p.Day}, &p.Last, &p.Archived, &p.URI, &p.Floor, &p.Expired, &p.Deleted, &r.state,
		&r.reason, &r.reasonSeq, &r.stop, &r.turnSeq, &r.naming.Opening, &r.naming.OpeningSeq, &r.naming.Model,
		&r.naming.ModelSeq, &r.session, &r.asks},
		`select run_day, last_seq, archived_seq, coalesce(replay_uri, ''), floor_seq, expired_seq, deleted_at is not null, state,
			reason, reason_seq, turn_stop, turn_seq, coalesce(opening, ''), opening_seq, coalesce(model, ''),
			model_seq, coalesce(session, ''), coalesce(asks, '')
		from agent_runs where koder_user_id = $1 and id = $2`+s.d.ForUpdate, w.Key.Tenant, w.Key.Run)
	if err != nil {
		return r, err
	}
	if _, err := tx.Row(ctx, []any{&r.held},
		`select exists (select 1 from agent_holds where koder_user_id = $1 and run_id in ('', $2))`,
		w.Key.Tenant, w.Key.Run); err != nil {
		return r, err
	}
	was, now := w.Was, r.place
	if w.URI == "" || w.Archived < was.Last { // newer events change nothing
		was.Last, now.Last = 0, 0
	}
	if !found || was != now || r.state.Final() != w.Ended {
		return r, persister.ErrMoved
	}
	return r, nil
}

// rewriteRun replaces the texts in the row of a run, and what names its object.
func (s *Store) rewriteRun(ctx context.Context, tx Tx, w *persister.Rewriting, r *rewrittenRun) error {
	session := json.RawMessage(r.session)
	if r.session == "" {
		session = nil
	}
	named, agent := r.naming.Columns(session), schema.FactsOf(session).Agent
	if _, err := tx.Exec(ctx, `update agent_runs set reason = $3, turn_stop = $4, opening = nullif($5, ''), model = nullif($6, ''),
			title = nullif($7, ''), tags = nullif($8, ''), words = $9, asks = nullif($10, ''), session = nullif($11, ''),
			session_agent = nullif($12, ''), opening_seq = $13, model_seq = $14, updated_at = `+s.d.Now+`
		where koder_user_id = $1 and id = $2`, w.Key.Tenant, w.Key.Run, r.reason, r.stop, r.naming.Opening,
		r.naming.Model, named.Title, named.Tags, named.Words, r.asks, r.session, agent, int64(r.naming.OpeningSeq),
		int64(r.naming.ModelSeq)); err != nil {
		return err
	}
	if w.URI == "" {
		return nil
	}
	_, err := tx.Exec(ctx, `update agent_runs set replay_uri = $3, archived_bytes = $4, archived_seq = $5, archive_after = null,
			archived_at = case when last_seq = $5 then coalesce(archived_at, $6) else archived_at end
		where koder_user_id = $1 and id = $2`, w.Key.Tenant, w.Key.Run, w.URI, w.Size, int64(w.Archived), s.d.Time(time.Now()))
	return err
}

// apply lets the row say what its events say now.
func (r *rewrittenRun) apply(t *persister.RunTexts) {
	r.reason, r.stop = t.Text(r.reason), t.Text(r.stop)
	r.naming.Opening, r.naming.Model = t.Text(r.naming.Opening), t.Text(r.naming.Model)
	switch {
	case r.asks == "":
	case t.Waits != nil:
		r.asks = schema.FormatAsks(t.Waits.Oldest())
	default:
		r.asks = string(t.Value([]byte(r.asks)))
	}
	if r.session != "" {
		r.session = string(t.Value([]byte(r.session)))
	}
	if t.Digest.ReasonSeq == r.reasonSeq && r.reasonSeq > 0 {
		r.reason = t.Digest.Reason
	}
	if t.Digest.TurnSeq == r.turnSeq && r.turnSeq > 0 {
		r.stop = t.Digest.Stop
	}
	// What was too long to name a run may not be any more.
	if n := &t.Naming; n.OpeningSeq > 0 && (r.naming.OpeningSeq == 0 || n.OpeningSeq == r.naming.OpeningSeq) {
		r.naming.Opening, r.naming.OpeningSeq = n.Opening, n.OpeningSeq
	}
	if n := &t.Naming; n.ModelSeq > 0 && n.ModelSeq >= r.naming.ModelSeq {
		r.naming.Model, r.naming.ModelSeq = n.Model, n.ModelSeq
	}
	if t.Session != nil && t.Session.Description != nil && r.session != "" {
		r.session = string(t.Session.Description)
	}
}

// RewriteDeadLetter replaces the content of a dead letter. Its name stays: a message that comes again is kept once.
func (s *Store) RewriteDeadLetter(ctx context.Context, l *deadletter.Stored) error {
	id, err := hex.DecodeString(l.Name)
	if err == nil {
		_, err = s.exec(ctx, `update agent_dead_letters set headers = $1, body = $2, detail = $3, last_error = $4 where id = $5`,
			l.HeaderBytes(), l.Body, persister.Text(l.Detail), persister.Text(l.Error), id)
	}
	if err != nil {
		return s.wrap(err, "rewrite dead letter %.12s", l.Name)
	}
	return nil
}
