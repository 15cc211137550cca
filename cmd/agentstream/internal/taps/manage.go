package taps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/natskit"
	"agentstream/tap"
	"agentstream/tap/natsjs"
)

// with opens what is kept of taps, and calls do.
func with(ctx context.Context, f *cli.NATSFlags, log *slog.Logger,
	do func(*natsjs.Places, jetstream.JetStream) error) error {
	nc, err := f.Dial("tap", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	places, err := natsjs.Open(ctx, nc)
	if err != nil {
		return hintMigrate(err)
	}
	return do(places, js)
}

// hintMigrate adds what to do to an error that says that there is no log.
func hintMigrate(err error) error {
	if errors.Is(err, natskit.ErrNotDeclared) {
		return fmt.Errorf("%w (run agentstream migrate first?)", err)
	}
	return err
}

// ListCmd lists taps.
type ListCmd struct {
	cli.NATSFlags
	JSON bool `name:"json" help:"Print one JSON object per line."`

	cli.Streams `kong:"-"`
}

// Run lists.
func (c *ListCmd) Run(ctx context.Context, log *slog.Logger) error {
	return with(ctx, &c.NATSFlags, log, func(p *natsjs.Places, js jetstream.JetStream) error {
		specs, err := p.List(ctx)
		if err != nil {
			return err
		}
		list := c.List(c.JSON, "no taps", "NAME", "TENANT", "TYPES", "TO", "MEMBERS", "LAG", "OLDEST", "DEAD LETTERS")
		for _, s := range specs {
			lag, err := p.Lag(ctx, js, s)
			if err != nil {
				return err
			}
			age := "-"
			row := map[string]any{"name": s.Name, "tenant": s.Tenant, "types": s.Types, "to": s.To, "members": lag.Members,
				"lag_messages": lag.Messages, "moved": lag.Moved, "dead_letters": lag.Letters,
				"full": lag.Full, "made": s.Made}
			if !lag.Oldest.IsZero() {
				age = max(0, time.Since(lag.Oldest)).Round(time.Second).String()
				row["oldest"] = lag.Oldest.UTC()
			}
			err = list.Add(row, s.Name, cmp.Or(s.Tenant, "all"), cmp.Or(strings.Join(s.Types, ","), "all"),
				cmp.Or(strings.Join(s.To, " "), "-"),
				lag.Members, lag.Messages, age, lettersOf(&lag))
			if err != nil {
				return err
			}
		}
		return list.Close()
	})
}

// lettersOf returns how many dead letters there are, for people.
func lettersOf(lag *natsjs.Lag) string {
	if lag.Full {
		return fmt.Sprintf("%d, full", lag.Letters)
	}
	return strconv.Itoa(lag.Letters)
}

// RemoveCmd removes a tap.
type RemoveCmd struct {
	cli.NATSFlags
	Name string `arg:"" help:"Name of the tap."`

	cli.Streams `kong:"-"`
}

// Run removes.
func (c *RemoveCmd) Run(ctx context.Context, log *slog.Logger) error {
	return with(ctx, &c.NATSFlags, log, func(p *natsjs.Places, js jetstream.JetStream) error {
		if err := (&tap.Spec{Name: c.Name}).Validate(); err != nil {
			return err
		}
		if err := p.Forget(ctx, js, c.Name); err != nil {
			return err
		}
		c.Notice("tap %s is removed", c.Name)
		return nil
	})
}

// LettersCmd holds the commands on dead letters of a tap.
type LettersCmd struct {
	List  LettersListCmd  `cmd:"" help:"List the dead letters of a tap, the oldest first."`
	Retry LettersRetryCmd `cmd:"" help:"Deliver dead letters once more."`
	Drop  LettersDropCmd  `cmd:"" help:"Remove dead letters for good."`
}

// LetterFlags say which dead letters are meant.
type LetterFlags struct {
	cli.NATSFlags
	Name string   `arg:"" help:"Name of the tap."`
	IDs  []string `arg:"" optional:"" name:"id" help:"Ids of dead letters."`
	All  bool     `help:"All of the tap."`
}

// choose returns the letters that are meant.
func (f *LetterFlags) choose(ctx context.Context, p *natsjs.Places) (letters []tap.Letter, err error) {
	if f.All == (len(f.IDs) > 0) {
		return nil, errors.New("name dead letters by their ids, or give --all")
	}
	all, err := p.Letters(ctx, f.Name)
	if err != nil || f.All {
		return all, err
	}
	for _, id := range f.IDs {
		found := 0
		for _, l := range all {
			if id != "" && strings.HasPrefix(l.ID, id) {
				letters = append(letters, l)
				found++
			}
		}
		if found != 1 {
			return nil, fmt.Errorf("ID must begin one dead letter's id, and %.40q begins %d", id, found)
		}
	}
	return letters, nil
}

// LettersListCmd lists.
type LettersListCmd struct {
	cli.NATSFlags
	Name string `arg:"" help:"Name of the tap."`
	JSON bool   `name:"json" help:"Print one JSON object per line, with the event."`

	cli.Streams `kong:"-"`
}

// Run lists.
func (c *LettersListCmd) Run(ctx context.Context, log *slog.Logger) error {
	return with(ctx, &c.NATSFlags, log, func(p *natsjs.Places, _ jetstream.JetStream) error {
		letters, err := p.Letters(ctx, c.Name)
		if err != nil {
			return err
		}
		list := c.List(c.JSON, "no dead letters", "ID", "AT", "RUN", "SEQ", "TYPE", "REASON", "DETAIL")
		for _, l := range letters {
			row := map[string]any{"id": l.ID, "tenant": l.Tenant, "run_id": l.Run, "seq": l.Seq, "type": l.Type,
				"reason": l.Reason,
				"detail": l.Detail, "at": l.At, "line": string(l.Line)}
			run := "-"
			if l.Run != "" {
				run = l.Tenant + "/" + l.Run
			}
			detail := fmt.Sprintf("%.120q", l.Detail) // another side's text must not steer a terminal
			if err := list.Add(row, l.ID, l.At.UTC().Format(time.RFC3339), run, l.Seq, cmp.Or(l.Type, "-"), l.Reason,
				detail); err != nil {
				return err
			}
		}
		return list.Close()
	})
}

// LettersRetryCmd delivers once more.
type LettersRetryCmd struct {
	LetterFlags
	SinkFlags
}

// Run delivers each letter by itself, and removes those that were taken.
func (c *LettersRetryCmd) Run(ctx context.Context, log *slog.Logger) error {
	return with(ctx, &c.NATSFlags, log, func(p *natsjs.Places, js jetstream.JetStream) error {
		letters, err := c.choose(ctx, p)
		if err != nil {
			return err
		}
		slices.SortFunc(letters, func(a, b tap.Letter) int { return cmp.Compare(a.Seq, b.Seq) }) // a run's in its order
		to, err := c.openBeside(ctx, js.Conn(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = to.Close() }() // what was written is written
		taken := 0
		for _, l := range letters {
			e, ok := l.Event()
			if !ok {
				c.Notice("%s holds no event (%s): it cannot be delivered", l.ID, l.Reason)
				continue
			}
			refused, err := to.Write(ctx, []tap.Event{e})
			if err != nil || len(refused) > 0 {
				c.Notice("%s is refused again", l.ID)
				continue
			}
			if err := p.Drop(ctx, c.Name, l.ID); err != nil {
				return err
			}
			taken++
		}
		c.Notice("%d of %d dead letters are delivered", taken, len(letters))
		if taken < len(letters) {
			return fmt.Errorf("tap: %d dead letters stay", len(letters)-taken)
		}
		return nil
	})
}

// LettersDropCmd removes.
type LettersDropCmd struct {
	LetterFlags

	cli.Streams `kong:"-"`
}

// Run removes.
func (c *LettersDropCmd) Run(ctx context.Context, log *slog.Logger) error {
	return with(ctx, &c.NATSFlags, log, func(p *natsjs.Places, _ jetstream.JetStream) error {
		letters, err := c.choose(ctx, p)
		if err != nil {
			return err
		}
		for _, l := range letters {
			if err := p.Drop(ctx, c.Name, l.ID); err != nil {
				return err
			}
		}
		c.Notice("%d dead letters are removed", len(letters))
		return nil
	})
}
