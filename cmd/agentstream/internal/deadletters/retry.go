package deadletters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/persister/deadletter"
)

// RetryCmd tries to store dead letters once more.
type RetryCmd struct {
	archive.StoreFlags
	LetterFilter
	IDs    []string `arg:"" optional:"" name:"id" help:"Letters to try; the first digits will do."`
	All    bool     `help:"Try all letters."`
	DryRun bool     `help:"Say what would come of it as far as that can be known; change nothing."`
	JSON   bool     `name:"json" help:"Print one JSON object per letter."`

	// Screen reports whether progress may be drawn; nil looks at Err and the environment.
	Screen *terminal.Screen `kong:"-"`
}

var errStay = errors.New("they stay dead letters")

// Run tries them. Letters that stay are an error.
func (c *RetryCmd) Run(ctx context.Context, log *slog.Logger) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	ways := 0
	for _, given := range []bool{len(c.IDs) > 0, c.All, !c.empty()} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("name dead letters by their ids, by filters or by --all, and by one of these alone")
	}
	return c.With(ctx, log, func(store *archive.CommandStore) error {
		s := store.Letters
		r := &retrying{cmd: c, store: s, meter: terminal.NewMeter(c.Stderr(), c.screen())}
		err = c.walk(ctx, s, q, r)
		r.meter.Clear()
		return c.report(ctx, r, err)
	})
}

func (c *RetryCmd) walk(ctx context.Context, s archive.DeadLetters, q deadletter.Query, r *retrying) error {
	var err error
	if len(c.IDs) > 0 {
		if q.Names, err = lettersNamed(ctx, s, c.IDs); err != nil {
			return err
		}
	}
	counts, err := s.CountDeadLetters(ctx, q)
	if err != nil {
		return err
	}
	r.total, _ = total(counts)
	return eachPage(ctx, s, q, func(page []deadletter.Stored) error { return r.page(ctx, page) })
}

func (c *RetryCmd) report(ctx context.Context, r *retrying, err error) error {
	if !c.JSON {
		would := ""
		if c.DryRun {
			would = "would be "
		}
		fmt.Fprintf(c.Stdout(), "%d tried: %d %sstored, %d %sletters of another kind, %d stay\n", r.tried, r.stored,
			would, r.became, would, r.stay)
	}
	if r.stay > stayNotices && !c.JSON {
		c.Notice("… and %d more", r.stay-stayNotices)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted after %d letters; the same command does the rest", r.tried)
	case err != nil:
		return err
	case r.stay > 0:
		return fmt.Errorf("%d of %d: %w", r.stay, r.tried, errStay)
	}
	return nil
}

func (c *RetryCmd) screen() terminal.Screen {
	if c.Screen != nil {
		return *c.Screen
	}
	return terminal.ScreenOf(c.Stderr(), os.LookupEnv)
}

// retrying counts what comes of the letters.
type retrying struct {
	cmd   *RetryCmd
	store archive.DeadLetters
	meter *terminal.Meter

	total, tried, stored, became, stay int
}

// stayNotices bounds how many letters that stay are named.
const stayNotices = 20

func (r *retrying) page(ctx context.Context, page []deadletter.Stored) error {
	var outcomes []deadletter.Outcome
	var err error
	if r.cmd.DryRun {
		outcomes, err = r.foresee(ctx, page)
	} else {
		outcomes, err = deadletter.Redrive(ctx, r.store, page...)
	}
	for i := range outcomes {
		if err := r.outcome(&page[i], &outcomes[i]); err != nil {
			return err
		}
	}
	r.progress()
	return err
}

func (r *retrying) outcome(l *deadletter.Stored, o *deadletter.Outcome) error {
	r.tried++
	what := "stored"
	switch {
	case o.Error != "":
		what = "stays"
		if r.stay++; r.stay <= stayNotices && !r.cmd.JSON {
			r.meter.Notice("%s %s: %s", l.Name[:12], terminal.Sanitize(l.Reason), terminal.Shorten(terminal.Sanitize(o.Error)))
		}
	case len(o.Became) > 0:
		what = "became"
		r.became++
	default:
		r.stored++
	}
	if !r.cmd.JSON {
		return nil
	}
	became := make([]string, len(o.Became))
	for i := range o.Became {
		became[i] = fmt.Sprintf("%x", o.Became[i].ID())
	}
	return r.cmd.Print(true, struct {
		ID      string   `json:"id"`
		Outcome string   `json:"outcome"`
		Became  []string `json:"became,omitempty"`
		Error   string   `json:"error,omitempty"`
		DryRun  bool     `json:"dry_run,omitempty"`
	}{o.Name, what, became, o.Error, r.cmd.DryRun}, "")
}

// foresee reads the letters and looks at their places. Whether the store would refuse a line is not known
// before it is tried.
func (r *retrying) foresee(ctx context.Context, page []deadletter.Stored) ([]deadletter.Outcome, error) {
	outcomes := make([]deadletter.Outcome, 0, len(page))
	for i := range page {
		l := &page[i]
		rows, bad := deadletter.Reread(l)
		o := deadletter.Outcome{Name: l.Name, Rows: len(rows), Became: bad}
		if len(rows) == 0 && len(bad) > 0 {
			o.Became, o.Error = nil, bad[0].Detail
		}
		stored, err := lineAt(ctx, r.store, l)
		if err != nil {
			return outcomes, err
		}
		if o.Error == "" && stored != nil && !bytes.Equal(stored, l.Body) {
			o.Error = "another content is stored at this run and seq"
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

func (r *retrying) progress() {
	r.meter.Progress(func() string {
		return fmt.Sprintf("%d of %d letters · %d stored · %d stay", r.tried, r.total, r.stored, r.stay)
	})
}

// lineAt returns the line that is stored at a letter's position; nil when there is none.
func lineAt(ctx context.Context, s archive.DeadLetters, l *deadletter.Stored) ([]byte, error) {
	if l.Seq == 0 || l.Key.Run == "" {
		return nil, nil
	}
	for p, err := range s.Packs(ctx, l.Key, l.Seq-1, l.Seq) {
		return bytes.TrimSuffix(p.Body, []byte{'\n'}), err
	}
	return nil, nil
}
