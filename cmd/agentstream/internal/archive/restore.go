package archive

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	"agentstream/persister/blob"
	"agentstream/schema"
)

// RestoreCmd restores runs from objects.
type RestoreCmd struct {
	TablesFlags
	Prefix string `arg:"" optional:"" help:"Only objects whose names begin so, and the runs of such: TENANT/DAY/RUN."`
	JSON   bool   `name:"json" help:"Print one JSON object."`
}

// Run restores, prints how far it is and what it has done, and fails when an object is damaged or events are lost. It
// may be interrupted and run again.
func (c *RestoreCmd) Run(ctx context.Context, log *slog.Logger) error {
	b, err := requireBlobs(c.Beside(c.Data).open(blob.ExistingFolder)) // a misspelt folder is no empty archive
	if err != nil {
		return err
	}
	s, done, err := c.Open(ctx, log)
	if err != nil {
		return err
	}
	defer done()
	p := &progress{print: c.Notice, last: time.Now()}
	r, err := blob.NewRestorer(blob.RestoreConfig{Tables: s.Rows, Into: s.restore, Store: b.ObjectStore, Base: b.base,
		Logger: log, Restored: p.countRestored, Failed: p.reportFailure})
	if err != nil {
		return err
	}
	got, err := r.Objects(ctx, c.Prefix)
	if err != nil {
		return err
	}
	missing, err := r.CheckRuns(ctx, p.each(within(ctx, s, c.Prefix)))
	if err == nil {
		err = s.restore.AddRunLosses(ctx, missing.Lost)
	}
	if err == nil {
		err = c.rewrite(ctx, s, b, missing.Freed, log)
	}
	if err == nil && c.Prefix == "" && got.Failed == 0 && got.Objects > 0 {
		err = s.restore.MarkRestored(ctx)
	}
	if err == nil {
		err = forgetFound(ctx, s, b)
	}
	if err != nil {
		return err
	}
	return c.report(got, missing)
}

// forgetFound removes the records of events that the archive has again.
func forgetFound(ctx context.Context, s *CommandStore, b *Blobs) error {
	all, err := Join(s.Rows, b)
	if err != nil {
		return err
	}
	lost, _, err := s.losses.RunLosses(ctx, EveryTenant, most)
	for _, l := range lost {
		if err != nil {
			return err
		}
		next := l.First
		for p, failed := range all.Packs(ctx, l.Key, l.First-1, l.Last) {
			if failed != nil || p.First != next { // it cannot be read: it stays
				break
			}
			next = p.Last() + 1
		}
		if next > l.Last {
			err = s.restore.DropRunLoss(ctx, l)
		}
	}
	return err
}

// rewrite writes the runs again whose objects do not exist.
func (c *RestoreCmd) rewrite(ctx context.Context, s *CommandStore, b *Blobs, runs []schema.RunKey,
	log *slog.Logger) error {
	a, err := c.NewArchiver(s.Rows, s.ended, nil, b, blob.Hooks{}, log)
	for _, key := range runs {
		if err != nil {
			return err
		}
		err = a.One(ctx, key)
	}
	return err
}

func (c *RestoreCmd) report(got blob.Restored, missing blob.Missing) error {
	lost := []string{}
	for i := range missing.Lost {
		lost = append(lost, missing.Lost[i].String())
	}
	err := c.Print(c.JSON, map[string]any{"objects": got.Objects, "restored": got.Runs, "events": got.Events,
		"failed": got.Failed, "rewritten": len(missing.Freed), "lost": lost},
		"%d objects, %d restored with %d events that the tables lacked, %d failed, %d written again", got.Objects,
		got.Runs, got.Events, got.Failed, len(missing.Freed))
	if err != nil {
		return err
	}
	for _, text := range lost {
		if !c.JSON {
			fmt.Fprintln(c.Stdout(), "LOST: "+text)
		}
	}
	if got.Failed > 0 || len(lost) > 0 {
		return fmt.Errorf("archive: %d objects are not restored, events of %d runs are lost", got.Failed, len(lost))
	}
	return nil
}

// within iterates over the stored runs whose objects have names that begin with prefix.
func within(ctx context.Context, s *CommandStore, prefix string) iter.Seq2[schema.RunKey, error] {
	return func(yield func(schema.RunKey, error) bool) {
		for key, err := range s.changes.RunsChangedSince(ctx, time.Unix(0, 0)) {
			of := key.Tenant + "/"
			if err == nil && !strings.HasPrefix(of, prefix[:min(len(prefix), len(of))]) {
				continue
			}
			if err == nil && len(prefix) > len(of) {
				place, failed := s.Rows.Place(ctx, key)
				if failed == nil && !strings.HasPrefix(of+place.Day+"/"+key.Run+".", prefix) {
					continue
				}
				err = failed
			}
			if !yield(key, err) {
				return
			}
		}
	}
}

// progressEvery is how often a restore prints how far it is.
const progressEvery = 5 * time.Second

// progress prints how far a restore is.
type progress struct {
	print        func(format string, args ...any)
	last         time.Time
	runs, events int
}

// countRestored counts a restored run, and prints the counts from time to time.
func (p *progress) countRestored(_ schema.RunKey, events int) {
	p.runs, p.events = p.runs+1, p.events+events
	if time.Since(p.last) >= progressEvery {
		p.last = time.Now()
		p.print("restored %d runs so far, %d events", p.runs, p.events)
	}
}

// reportFailure prints an object that could not be restored.
func (p *progress) reportFailure(name string, err error) {
	p.print("BAD\t%s\t%v", printable(name), err)
}

// each prints now and then how many runs were looked at.
func (p *progress) each(keys iter.Seq2[schema.RunKey, error]) iter.Seq2[schema.RunKey, error] {
	return func(yield func(schema.RunKey, error) bool) {
		n := 0
		for key, err := range keys {
			if n++; time.Since(p.last) >= progressEvery {
				p.last = time.Now()
				p.print("looked for the objects of %d runs so far", n)
			}
			if !yield(key, err) {
				return
			}
		}
	}
}
