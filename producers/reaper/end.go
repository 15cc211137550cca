package reaper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// goneReason is the reason of a run whose writer is gone.
const goneReason = "writer is gone"

// reapAttempts bounds how often an ending is made again, because children that nobody has asked still write.
const reapAttempts = 20

// ending is a run as it is read to be ended.
type ending struct {
	open    producers.Open
	last    schema.Seq
	pos     uint64
	session bool              // it is a session
	once    producers.Once    // of one that is answered once
	shut    string            // why nobody will write to it any more: it is archived, or deleted; "" otherwise
	owners  map[string]string // of lanes
	fold    schema.Fold       // light: states, questions, plans and commands
}

// endRun ends a run, unless a writer has written to it since it was found silent. It reports whether it did.
func (r *Reaper) endRun(ctx context.Context, s *suspect) (bool, error) {
	e := &ending{owners: make(map[string]string)}
	e.fold.Lighten()
	if err := r.readOn(ctx, s.key, e); err != nil {
		return false, err
	}
	if e.last != s.last || e.open.State("").Final() {
		return false, nil
	}
	if e.shut == "" && (e.session && e.open.Idle() || e.fold.IsWaiting()) {
		if at, _ := e.once.Due(time.Time{}); at.IsZero() {
			r.noteRest(s.key, e.last)
		} else {
			r.fineUntil(s.key, r.cfg.Now().Add(r.cfg.Every+max(r.cfg.After, 0)))
		}
		return false, nil
	}
	if alone, err := r.alone(ctx, s, e); err != nil || !alone {
		return false, err
	}
	pub, err := producers.New(producers.Config{Log: r.cfg.Log, Key: s.key, Archive: r.cfg.Archive, Redact: r.cfg.Redact, Seal: r.cfg.Seal,
		Now: r.cfg.Now, Logger: r.cfg.Logger})
	if err != nil {
		return false, err
	}
	defer func() { _ = pub.Close(ctx) }() // what became of its events is known
	ended, err := r.close(ctx, pub, s.key, e)
	if err != nil || !ended {
		return false, err
	}
	r.reportReaped(s, e.why())
	return true, nil
}

// reportReaped logs and counts a run that was ended.
func (r *Reaper) reportReaped(s *suspect, why string) {
	r.cfg.Logger.Info("reaper: a run was ended", "why", why, "run", s.key.String(), "owner", s.owner, "after",
		int64(s.last))
	if h := r.cfg.Hooks.Reaped; h != nil {
		h(s.key, s.owner != "")
	}
}

// alone asks those who own the run's children, where they are others than the run's own owner: who runs a
// child is a writer too.
func (r *Reaper) alone(ctx context.Context, s *suspect, e *ending) (bool, error) {
	asked := map[string]bool{s.owner: true}
	for lane, owner := range e.owners {
		if asked[owner] || owner == "" || e.open.State(lane).Final() {
			continue
		}
		asked[owner] = true
		there, err := r.cfg.Witness.Ask(ctx, s.key, owner)
		if err != nil || there {
			if there {
				r.fineUntil(s.key, r.cfg.Now().Add(r.cfg.After))
			}
			return false, err
		}
	}
	return true, nil
}

// close writes the ending. Its first event demands to be the next one of the run, and is of the run's own
// lane, which it takes over. An ending of several lanes, which is not stored at once, begins with an event of
// its own. From then on the run is ours, and writers of its children are waited for.
func (r *Reaper) close(ctx context.Context, pub *producers.Publisher, key schema.RunKey, e *ending) (bool, error) {
	events := e.closing()
	ours := false
	for range reapAttempts {
		if !ours && manyLanes(events) {
			mark := producers.CommandsTaken("", e.last, "")
			mark.Actor = reaperActor
			events = []schema.Event{mark}
		}
		for i := range events {
			events[i].Seq = e.last + 1 + schema.Seq(i)
		}
		_, err := pub.Append(ctx, events...)
		switch {
		case err == nil && events[0].Type != schema.TypeCommandsTaken:
			return true, nil
		case err == nil:
			ours = true
		case errors.Is(err, schema.ErrEnded), errors.Is(err, producers.ErrFenced), errors.Is(err,
			schema.ErrSeqMismatch) && !ours:
			return false, nil // somebody was there: the writer, its successor, or another reaper
		case !errors.Is(err, schema.ErrSeqMismatch):
			return false, err
		}
		if err := r.readOn(ctx, key, e); err != nil {
			return false, err
		}
		if e.open.State("").Final() || !ours && e.fold.IsWaiting() && e.shut == "" {
			return false, nil
		}
		events = e.closing()
	}
	return false, fmt.Errorf("still spoken for by children after %d attempts", reapAttempts)
}

// reaperActor is the actor of an ending.
const reaperActor = "system"

// why returns the reason for which a run is ended.
func (e *ending) why() string {
	if e.shut != "" && e.open.Idle() {
		return e.shut
	}
	return goneReason
}

// closing returns the ending. That of a session that was closed while nothing was under way is no failure, and
// marked so that nobody who reads it as a session is shown anything after its end.
func (e *ending) closing() []schema.Event {
	why := e.why()
	if why == goneReason {
		return e.open.Close(producers.Closing{Failed: true, Reason: why, Actor: reaperActor})
	}
	payload := fmt.Appendf(nil, `{"state":%q,"reason":%q,"session":true}`, schema.StateDone, why)
	return []schema.Event{{Type: schema.TypeRunLifecycle, Actor: reaperActor, Payload: payload}}
}

func manyLanes(events []schema.Event) bool {
	for i := range events {
		if events[i].ChildID != "" {
			return true
		}
	}
	return false
}

// readOn reads what comes after e.last, the beginning from the past where the log no longer has it.
func (r *Reaper) readOn(ctx context.Context, key schema.RunKey, e *ending) error {
	w := producers.Walk{Log: r.cfg.Log, Past: r.cfg.Past, Key: key, Pos: e.pos, Last: e.last}
	for p, err := range w.Packs(ctx) {
		if err != nil {
			return err
		}
		if err := e.see(&p); err != nil {
			return err
		}
	}
	e.pos = w.Pos
	return nil
}

func (e *ending) see(p *schema.Pack) error {
	for rec, err := range p.Records(e.last) {
		if err != nil {
			return err
		}
		ev, err := rec.Event()
		if err != nil {
			return err
		}
		if ev.Seq == 1 {
			e.session, e.once = ev.Type == schema.TypeSessionCreated, producers.ReadOnce(&ev)
		}
		switch {
		case p.Child != "":
		case ev.Type == schema.TypeSessionArchived:
			e.shut = "archived"
		case ev.Type == schema.TypeSessionDeleted:
			e.shut = "deleted"
		}
		e.open.See(&ev)
		e.fold.Add(&ev)
	}
	e.last = p.Last()
	if o := p.Head.Lane.Owner; o != "" {
		e.owners[p.Child] = o
	}
	return nil
}
