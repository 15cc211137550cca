package scrub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"agentstream/internal/backoff"
	"agentstream/persister"
	"agentstream/schema"
	"agentstream/schema/redact"
)

// one is the work on one run.
type one struct {
	*Scrubber
	key   schema.RunKey
	rules *redact.Rules
	place persister.Place
	ended bool
	blobs map[string][]redact.Hit // found in blobs, by their refs

	sealed map[string]bool // refs of blobs that cannot be looked into

	through uint64 // position in the log up to which all is stored
	marked  bool   // an event says that something was hidden
	done    Done
}

// moves is how often a run is looked at again that has moved meanwhile.
const moves = 8

// Run hides what the rules of its tenant find in one run. The error wraps persister.ErrHeld when the run is under a legal
// hold and something would be changed, ErrNotStored, and ErrNoObjects. After an error the run can be done again.
func (s *Scrubber) Run(ctx context.Context, key schema.RunKey) (Done, error) {
	rules := s.cfg.Rules(key.Tenant)
	if rules == nil {
		return Done{}, nil
	}
	var r *one
	err := error(persister.ErrMoved)
	for try := 0; try < moves && errors.Is(err, persister.ErrMoved); try++ {
		r = &one{Scrubber: s, key: key, rules: rules}
		err = r.run(ctx)
	}
	if err != nil {
		err = fmt.Errorf("scrub: run %s: %w", key, err)
	}
	return r.done, err
}

// run does the steps. What may be the only copy of an event changes first: the rows, together with the name of a new object.
// What the log has is compared with them afterwards, so that a run that was cut after any step goes on with the next one.
func (r *one) run(ctx context.Context) error {
	if err := r.awaitStored(ctx); err != nil {
		return err
	}
	var err error
	if r.place, err = r.cfg.Store.Place(ctx, r.key); err != nil {
		return err
	}
	if r.place.Deleted {
		return nil
	}
	if err := r.findBlobs(ctx); err != nil {
		return err
	}
	if r.place.Day != "" {
		if err := r.rewriteStored(ctx); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{r.cutLog, r.dropBlobs, r.letters} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if (r.done.Any() || r.marked) && !r.cfg.DryRun && r.cfg.Changed != nil {
		return r.cfg.Changed(ctx, r.key)
	}
	return nil
}

// awaitStored waits until the tables have what the log has of the run now. A writer does not keep it from ending.
func (r *one) awaitStored(ctx context.Context) error {
	if r.cfg.Log == nil {
		return nil
	}
	stream, newest, err := r.cfg.Log.Newest(ctx, r.key)
	if err != nil || newest == 0 {
		return err
	}
	for end := time.Now().Add(r.cfg.Wait); ; {
		if r.through, err = r.offset(ctx, stream); err != nil || r.through >= newest {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("message %d of %s, %d is stored: %w", newest, stream, r.through, ErrNotStored)
		}
		if err := backoff.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (r *one) offset(ctx context.Context, stream string) (uint64, error) {
	offsets, err := r.cfg.Offsets(ctx)
	for i := range offsets {
		if offsets[i].Stream == stream {
			return offsets[i].Position, err
		}
	}
	return 0, err
}

// rewriteStored changes rows and object.
func (r *one) rewriteStored(ctx context.Context) error {
	head, err := r.cfg.History.Head(ctx, r.key, "")
	if err != nil {
		return err
	}
	r.ended = head.State.Final()
	if r.place.Floor > r.place.Expired && r.cfg.Objects == nil {
		return ErrNoObjects
	}
	look := redact.NewStored(r.rules, r.blobs)
	for range r.lines(ctx, look, r.place.Last, &err) {
		r.done.Events++
	}
	if err != nil {
		return err
	}
	r.done.Changed, r.done.Hits, r.done.Sealed.Events = look.Changed, look.Hits, look.Sealed
	if r.cfg.DryRun {
		return nil
	}
	if look.Changed > 0 && r.place.URI != "" && r.cfg.Objects == nil {
		return ErrNoObjects
	}
	if look.Changed > 0 || r.place.Expired > 0 { // its row may hold what expired events have said
		if err := r.rewrite(ctx); err != nil {
			return err
		}
	}
	if r.cfg.Objects == nil {
		return nil
	}
	if r.place, err = r.cfg.Store.Place(ctx, r.key); err != nil {
		return err
	}
	_, err = r.cfg.Objects.DropOthers(ctx, r.key, r.place)
	return err
}

// lines iterates over the run's lines as they are to be, up to a seq. It ends with the first error, which it sets.
func (r *one) lines(ctx context.Context, look *redact.Stored, through schema.Seq, failed *error) iter.Seq[redact.StoredLine] {
	return func(yield func(redact.StoredLine) bool) {
		give := func(list []redact.StoredLine) bool {
			for _, l := range list {
				r.marked = r.marked || l.Marked
				if !yield(l) {
					return false
				}
			}
			return true
		}
		for p, err := range r.cfg.History.Packs(ctx, r.key, 0, through) {
			if err != nil {
				*failed = err
				return
			}
			for line := range schema.Lines(p.Body) {
				list, err := look.Add(line)
				if err != nil {
					*failed = fmt.Errorf("read an event of %d to %d: %w", p.First, p.Last(), err)
					return
				}
				if !give(list) {
					return
				}
			}
		}
		give(look.Rest())
	}
}

// rewrite writes a new object where the run has one, or is to get one, and changes the rows.
func (r *one) rewrite(ctx context.Context) error {
	w := persister.Rewriting{Key: r.key, Was: r.place, Ended: r.ended, HeldToo: r.cfg.HeldToo}
	switch {
	case r.cfg.Objects == nil || r.place.Last == r.place.Expired:
	case r.place.URI != "" && r.place.Archived > r.place.Expired:
		w.Archived = r.place.Archived
	case r.ended: // an archiver may be writing one of what was: it gets no name then
		w.Archived = r.place.Last
	}
	if w.Archived > 0 {
		var err error
		if w.URI, w.Size, err = r.cfg.Objects.Write(ctx, r.key, r.place, w.Archived, r.packs(ctx, w.Archived)); err != nil {
			return err
		}
		r.done.Objects++
	}
	return r.cfg.Store.Rewrite(ctx, w, func(event func(*persister.Rewritten) error) (persister.RunTexts, error) {
		return r.rows(ctx, event)
	})
}

// rows changes the rows of events, and returns what the run's row is to say.
func (r *one) rows(ctx context.Context, event func(*persister.Rewritten) error) (persister.RunTexts, error) {
	t := persister.RunTexts{Text: r.text, Value: r.value}
	if r.place.Expired == 0 {
		t.Session, t.Waits = &persister.Session{}, &schema.Waits{}
	}
	var err error
	for l := range r.lines(ctx, redact.NewStored(r.rules, r.blobs), r.place.Last, &err) {
		e, err := schema.ScanLine(l.Line)
		if err != nil {
			return t, fmt.Errorf("event %d: %w", l.Seq, err)
		}
		typ, child, payload := string(e.Type), string(e.Child), e.Payload()
		ts, _ := e.Time()
		t.Digest.Add(l.Seq, ts, typ, child, payload)
		t.Digest.Usage = t.Digest.Usage[:0]
		if persister.IsNaming(typ) {
			t.Naming.Add(l.Seq, typ, child, payload)
		}
		if t.Session != nil && child == "" && persister.IsSession(typ) {
			if s, ok := persister.SessionEventOf(l.Seq, typ, l.Line); ok {
				t.Session.Merge([]persister.SessionEvent{s})
			}
		}
		if ask, ok := schema.AskEventOf(l.Seq, ts, typ, child, payload); ok && t.Waits != nil {
			t.Waits.Apply(&ask)
		}
		if !l.Changed {
			continue
		}
		if err := event(&persister.Rewritten{Seq: l.Seq, Child: child, Type: typ, Line: l.Line, Payload: payload,
			Gone: l.Seq <= r.place.Floor}); err != nil {
			return t, err
		}
	}
	return t, err
}

func (r *one) text(s string) string {
	s, _ = r.rules.Text(s)
	return s
}

func (r *one) value(v []byte) []byte {
	v, _ = r.rules.Value("", v)
	return v
}

// packs iterates over the run's packs as they are to be, up to a seq.
func (r *one) packs(ctx context.Context, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		look := redact.NewStored(r.rules, r.blobs)
		var waiting []schema.Pack // their lines are not decided
		var lines []redact.StoredLine
		give := func(more []redact.StoredLine) bool {
			lines = append(lines, more...)
			for len(waiting) > 0 && len(lines) >= waiting[0].Count {
				p := waiting[0]
				p.Body = joinLines(lines[:p.Count])
				lines, waiting = lines[p.Count:], waiting[1:]
				if !yield(p, nil) {
					return false
				}
			}
			return true
		}
		for p, err := range r.cfg.History.Packs(ctx, r.key, 0, through) {
			if err != nil {
				yield(p, err)
				return
			}
			body := p.Body
			p.Body = nil
			waiting = append(waiting, p)
			for line := range schema.Lines(body) {
				more, err := look.Add(line)
				if err != nil {
					yield(p, err)
					return
				}
				if !give(more) {
					return
				}
			}
		}
		give(look.Rest())
	}
}

func joinLines(lines []redact.StoredLine) []byte {
	var b bytes.Buffer
	for _, l := range lines {
		b.Write(l.Line)
		b.WriteByte('\n')
	}
	return b.Bytes()
}
