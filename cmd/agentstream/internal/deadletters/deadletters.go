package deadletters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/persister/deadletter"
)

// Cmd holds the commands on what the log took and the archive could not store.
type Cmd struct {
	List  ListCmd  `cmd:"" help:"List dead letters, the newest first."`
	Retry RetryCmd `cmd:"" help:"Try to store dead letters once more."`
	Drop  DropCmd  `cmd:"" help:"Remove dead letters for good."`
}

// LetterFilter chooses dead letters.
type LetterFilter struct {
	Tenant string `help:"Only of this tenant; without it all, also those that name none." placeholder:"TENANT"`
	Run    string `name:"run" help:"Only of this run." placeholder:"RUN"`
	Reason string `help:"Only with this reason: bad_message, bad_event, refused, conflict." enum:",bad_message,bad_event,refused,conflict" default:"" placeholder:"REASON"`
	Stream string `help:"Only of this stream of the log." placeholder:"STREAM"`
	Since  string `help:"Only those set aside then or later: a time (RFC 3339) or so long ago (90m, 24h)." placeholder:"TIME"`
	Before string `help:"Only those set aside before." placeholder:"TIME"`
}

func (f *LetterFilter) empty() bool { return *f == LetterFilter{} }

func (f *LetterFilter) query(now time.Time) (q deadletter.Query, err error) {
	q = deadletter.Query{Tenant: f.Tenant, Run: f.Run, Reason: f.Reason, Stream: f.Stream}
	if q.Since, err = cli.ParseSince("--since", f.Since, now); err != nil {
		return q, err
	}
	q.Before, err = cli.ParseSince("--before", f.Before, now)
	return q, err
}

// lettersNamed finds letters by their ids, of which the first digits will do when no other begins so.
func lettersNamed(ctx context.Context, s archive.DeadLetters, ids []string) ([]string, error) {
	names := make([]string, len(ids))
	for i, id := range ids {
		found, err := s.FindDeadLetters(ctx, deadletter.Query{Prefix: strings.ToLower(id), Limit: 2})
		switch {
		case err != nil:
			return nil, err
		case len(found) == 0 || id == "":
			return nil, fmt.Errorf("dead letter %q: there is none whose id begins so", terminal.Clip(id, 64))
		case len(found) > 1:
			return nil, fmt.Errorf("dead letter %q: several ids begin so; give more digits", terminal.Clip(id, 64))
		}
		names[i] = found[0].Name
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// How much of the letters is held at once.
const (
	letterPage      = 256
	letterPageBytes = 4 << 20
)

// eachPage hands the letters of a query to fn in pages, newest first, bodies included. What fn removes, and
// what is set aside meanwhile, does not disturb it.
func eachPage(ctx context.Context, s archive.DeadLetters, q deadletter.Query,
	fn func([]deadletter.Stored) error) error {
	for {
		q.Limit, q.Bodies = letterPage, false
		page, err := s.FindDeadLetters(ctx, q)
		if err != nil || len(page) == 0 {
			return err
		}
		last := page[len(page)-1]
		for len(page) > 0 {
			n, size := 0, 0
			names := make([]string, 0, len(page))
			for n < len(page) && (n == 0 || size+page[n].Size <= letterPageBytes) {
				names = append(names, page[n].Name)
				size += page[n].Size
				n++
			}
			whole, err := s.FindDeadLetters(ctx, deadletter.Query{Names: names, Limit: n, Bodies: true})
			if err != nil {
				return err
			}
			if len(whole) > 0 {
				if err := fn(whole); err != nil {
					return err
				}
			}
			page = page[n:]
		}
		q.After = &last
	}
}

// total adds up counts by reason, and returns the sum and a text that lists them, the most first.
func total(counts map[string]int) (n int, text string) {
	reasons := make([]string, 0, len(counts))
	for reason, c := range counts {
		n += c
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", counts[reason], terminal.Sanitize(reason))
	}
	return n, strings.Join(reasons, ", ")
}

// DropCmd removes dead letters.
type DropCmd struct {
	archive.StoreFlags
	LetterFilter
	IDs  []string `arg:"" optional:"" name:"id" help:"Letters to remove; the first digits will do."`
	All  bool     `help:"Remove all that the filters name; --reason must be one of them."`
	Yes  bool     `help:"With --all: do it. Without, only their number is said."`
	JSON bool     `name:"json" help:"Print one JSON object."`
}

// Run removes them.
func (c *DropCmd) Run(ctx context.Context, log *slog.Logger) error {
	q, err := c.query(time.Now())
	switch {
	case err != nil:
		return err
	case len(c.IDs) > 0 && (c.All || !c.empty()):
		return errors.New("letters are named, or chosen by --all and filters; not both")
	case len(c.IDs) == 0 && (!c.All || c.Reason == ""):
		return errors.New("name letters, or give --all with --reason: what is dropped is gone")
	}
	return c.With(ctx, log, func(store *archive.CommandStore) error {
		s := store.Letters
		if len(c.IDs) > 0 {
			names, err := lettersNamed(ctx, s, c.IDs)
			if err != nil {
				return err
			}
			n, err := s.DropDeadLetters(ctx, names)
			return c.printDropped(n, err)
		}
		counts, err := s.CountDeadLetters(ctx, q)
		if err != nil {
			return err
		}
		if n, text := total(counts); !c.Yes {
			err := c.Print(c.JSON, map[string]any{"would_drop": n, "reasons": counts}, "would drop %d: %s", n, text)
			return errors.Join(err, errors.New("nothing is dropped without --yes"))
		}
		return c.dropAll(ctx, s, q)
	})
}

// printDropped prints how many are gone, also when err ended it.
func (c *DropCmd) printDropped(n int, err error) error {
	return errors.Join(err, c.Print(c.JSON, map[string]int{"dropped": n}, "dropped %d", n))
}

func (c *DropCmd) dropAll(ctx context.Context, s archive.DeadLetters, q deadletter.Query) error {
	q.Limit = letterPage
	for dropped := 0; ; {
		page, err := s.FindDeadLetters(ctx, q)
		if err != nil || len(page) == 0 {
			return c.printDropped(dropped, err)
		}
		names := make([]string, len(page))
		for i := range page {
			names[i] = page[i].Name
		}
		n, err := s.DropDeadLetters(ctx, names)
		dropped += n
		if err != nil {
			return fmt.Errorf("after %d: %w", dropped, err)
		}
		q.After = &page[len(page)-1]
	}
}
