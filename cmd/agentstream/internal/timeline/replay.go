package timeline

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"syscall"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/internal/backoff"
	"agentstream/schema"
)

// ReplayCmd plays a run that is stored, with its original timing.
type ReplayCmd struct {
	cli.ServerFlags
	Source  string        `arg:"" name:"run" help:"Run to play, or a file of events, one per line, as replay.jsonl gives them; ./NAME is a file whatever its name, - is standard input."`
	Speed   float64       `help:"How many times faster than it was." default:"1"`
	MaxIdle time.Duration `help:"Longest pause of the run that is kept, in its own time." default:"2s"`
	From    schema.Seq    `help:"Begin behind this seq." placeholder:"SEQ"`
	To      schema.Seq    `help:"End with this seq; 0 is the run's newest event." placeholder:"SEQ"`
	JSON    bool          `name:"json" help:"Print the events as they are stored, one JSON object per line."`

	cli.Streams `kong:"-"`
	// Screen overrides what is found out about the output. Nil looks at Out and the environment.
	Screen *terminal.Screen `kong:"-"`
}

// Run plays until the end of what is stored, or until the context ends, which is no error.
func (c *ReplayCmd) Run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	v := newView(c.Stdout(), c.JSON, c.Screen)
	say := func(format string, args ...any) {
		v.interrupt()
		c.Notice(format, args...)
	}
	source, err := c.open(ctx, say)
	if err != nil {
		return err
	}
	defer source.close()
	gaps, err := c.play(ctx, source.events, v, say)
	if cerr := v.close(); err == nil {
		err = cerr
	}
	switch {
	case errors.Is(err, syscall.EPIPE), err != nil && ctx.Err() != nil:
		return nil // the reader of our output, or the person before it, has seen enough
	case err != nil:
		return fmt.Errorf("replay %s: %w", c.Source, err)
	case gaps > 0:
		return fmt.Errorf("replay %s: %d gaps: %w", c.Source, gaps, errGap)
	}
	return nil
}

func (c *ReplayCmd) check() error {
	if c.From < 0 || c.From > schema.MaxSeq || c.To < 0 || c.To > schema.MaxSeq {
		return fmt.Errorf("--from and --to must be from 0 to %d, not %d and %d", schema.MaxSeq, c.From, c.To)
	}
	if c.To > 0 && c.To < c.From {
		return fmt.Errorf("--to %d: is before --from %d", c.To, c.From)
	}
	if !(c.Speed > 0) {
		return fmt.Errorf("--speed must be more than 0, not %v", c.Speed)
	}
	if c.MaxIdle < 0 {
		return fmt.Errorf("--max-idle must be 0 or more, not %s", c.MaxIdle)
	}
	return nil
}

// stored are events as they are stored, in their order, with a line for each.
type stored struct {
	events iter.Seq2[schema.Event, error]
	close  func()
}

func (c *ReplayCmd) open(ctx context.Context, say cli.Notice) (stored, error) {
	if c.Source == "-" {
		return stored{readEvents("standard input", cli.Interruptible(ctx, c.Stdin())), func() {}}, nil
	}
	if schema.ValidRunID(c.Source) != nil { // no id of a run has a dot or a slash in it
		f, err := os.Open(c.Source)
		if err != nil {
			return stored{}, fmt.Errorf("RUN is no id, and no file: %w", err)
		}
		return stored{readEvents(c.Source, f), func() { f.Close() }}, nil
	}
	cl, err := cli.NewClient(c.ServerFlags, say)
	if err != nil {
		return stored{}, err
	}
	return stored{cl.Run(c.Source).Export(ctx, c.From, c.To), cl.Close}, nil
}

// play shows the events that are asked for, each when it is due, and counts the gaps between them.
func (c *ReplayCmd) play(ctx context.Context, events iter.Seq2[schema.Event, error], v view, say cli.Notice) (gaps int,
	err error) {
	pace := cli.Pacer{Speed: c.Speed, Most: c.MaxIdle}
	last := c.From
	for e, err := range events {
		switch {
		case err != nil:
			return gaps, err
		case e.Seq <= c.From:
			continue
		case c.To > 0 && e.Seq > c.To:
			return gaps, nil
		}
		if e.First() != last+1 {
			gaps++
			say("%s", gapText(&agentstream.GapError{After: last, First: e.First(), Seq: e.Seq}))
		}
		last = e.Seq
		at, _ := time.Parse(time.RFC3339Nano, e.TS) // without a time it goes at once
		if d := pace.Until(at); d > 0 {
			if err := v.flush(); err != nil {
				return gaps, err
			}
			if err := backoff.Sleep(ctx, d); err != nil {
				return gaps, err
			}
		}
		if err := v.event(e.AppendLine(nil), &e); err != nil {
			return gaps, err
		}
	}
	return gaps, nil
}

// readEvents reads NDJSON, also when it is compressed with gzip.
func readEvents(name string, r io.Reader) iter.Seq2[schema.Event, error] {
	return func(yield func(schema.Event, error) bool) {
		in := bufio.NewReader(r)
		if magic, _ := in.Peek(2); string(magic) == "\x1f\x8b" {
			z, err := gzip.NewReader(in)
			if err != nil {
				yield(schema.Event{}, fmt.Errorf("%s: %w", name, err))
				return
			}
			defer z.Close()
			in = bufio.NewReader(z)
		}
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, cli.MaxAhead)
		for row := 1; lines.Scan(); row++ {
			if len(bytes.TrimSpace(lines.Bytes())) == 0 {
				continue
			}
			e, err := schema.DecodeLine(lines.Bytes())
			if err == nil && (e.Type == "" || e.Seq == 0) {
				err = fmt.Errorf("no type or no seq: %w", schema.ErrMalformed)
			}
			if err != nil {
				yield(schema.Event{}, fmt.Errorf("%s:%d: %w", name, row, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(schema.Event{}, fmt.Errorf("%s: %w", name, err))
		}
	}
}
