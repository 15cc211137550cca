package timeline

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// TailCmd follows a run and shows it, from any position, until its end.
type TailCmd struct {
	cli.ServerFlags
	RunID    string     `arg:"" name:"run" help:"Run to follow; a child's id follows the child alone."`
	From     schema.Seq `help:"Begin behind this seq: the last event that was seen." placeholder:"SEQ"`
	Snapshot bool       `help:"Begin with one line that sums up what has happened, not with everything again."`
	Child    []string   `help:"Children to show; - is the run itself." placeholder:"ID"`
	Nested   bool       `help:"Show the children of the children named by --child as well."`
	Types    []string   `help:"Types to show, by name or as a family: tool.*" placeholder:"TYPE"`
	Detail   string     `help:"folded merges neighbouring deltas, full shows every event as it is stored. --json is full unless told otherwise." enum:",folded,full" default:"" placeholder:"folded|full"`
	Exit     bool       `name:"exit-status" help:"Exit with status 1 when the run has ended as error, and 2 when it is aborted."`
	JSON     bool       `name:"json" help:"Print the events as they came, one JSON object per line."`

	cli.Streams `kong:"-"`
	// Screen overrides what is found out about the output. Nil looks at Out and the environment.
	Screen *terminal.Screen `kong:"-"`
}

// errGap makes the command fail at its end when what it showed was not the whole.
var errGap = errors.New("events are missing from the stream")

// Run follows the run until its end or until the context ends, which is the usual way to stop and no
// error. It fails when the server refuses, and at the end when events were missing.
func (c *TailCmd) Run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	v := newView(c.Stdout(), c.JSON, c.Screen)
	say := func(format string, args ...any) {
		v.interrupt()
		c.Notice(format, args...)
	}
	cl, err := cli.NewClient(c.ServerFlags, say)
	if err != nil {
		return err
	}
	defer cl.Close()

	s := cl.Run(c.RunID).Watch(ctx, c.options())
	defer s.Close()
	err = showStream(ctx, s, v, say)
	if cerr := v.close(); err == nil {
		err = cerr
	}
	stats := s.Stats()
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil // the reader of our output has seen enough
	case err != nil && ctx.Err() != nil:
		if s.Cursor() > c.From {
			c.Notice("stopped behind seq %d; go on with --from %d", s.Cursor(), s.Cursor())
		}
		return nil
	case err != nil:
		return fmt.Errorf("tail run %s: %w", c.RunID, err)
	case stats.Gaps+stats.Duplicates+stats.PassedOver > 0:
		return fmt.Errorf("tail run %s: %d gaps, %d doubled, %d that are no events: %w", c.RunID, stats.Gaps,
			stats.Duplicates, stats.PassedOver, errGap)
	}
	return c.status(ctx, cl)
}

// status returns an exit status for a run that has not ended well, where that is asked for. The server is asked,
// because what was watched may be a part of the run.
func (c *TailCmd) status(ctx context.Context, cl *agentstream.Client) error {
	if !c.Exit {
		return nil
	}
	run, err := cl.Run(c.RunID).Info(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("tail run %s: %w", c.RunID, err)
	case run.State == schema.StateError:
		return cli.ExitStatus(1)
	case run.State == schema.StateAborted:
		return cli.ExitStatus(2)
	}
	return nil
}

func (c *TailCmd) check() error {
	if err := schema.ValidRunID(c.RunID); err != nil {
		return fmt.Errorf("RUN: %w", err)
	}
	if c.From < 0 || c.From > schema.MaxSeq {
		return fmt.Errorf("--from must be from 0 to %d, not %d", schema.MaxSeq, c.From)
	}
	if c.Snapshot && c.From > 0 {
		return errors.New("--snapshot: sums up what is before a position, and --from names one")
	}
	for _, child := range c.Child {
		if child == agentstream.RootLane {
			continue
		}
		if err := schema.ValidRunID(child); err != nil {
			return fmt.Errorf("--child: %w", err)
		}
	}
	return nil
}

// options: what is printed for a program is what is stored; a person's eye needs no single tokens,
// and what was dropped on the way to a slow terminal is fetched.
func (c *TailCmd) options() agentstream.Options {
	o := agentstream.Options{After: c.From, Snapshot: c.Snapshot, Children: c.Child, Nested: c.Nested, Types: c.Types,
		Refetch: !c.JSON}
	if c.Detail == "full" || c.Detail == "" && c.JSON {
		o.Detail = agentstream.DetailFull
	}
	return o
}

// showStream passes a stream's events to a view until the run has ended.
func showStream(ctx context.Context, s *agentstream.Stream, v view, say cli.Notice) error {
	for {
		e, err := s.Next(ctx)
		if gap := new(agentstream.GapError); errors.As(err, &gap) {
			say("%s", gapText(gap))
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := v.event(s.Line(), &e); err != nil {
			return err
		}
		if s.HasBuffered() {
			continue
		}
		if err := v.flush(); err != nil {
			return err
		}
	}
}

// gapText shouts: a person must not read on as if nothing were amiss.
func gapText(g *agentstream.GapError) string {
	switch {
	case g.Cause != nil:
		return fmt.Sprintf("GAP: seq %d to %d cannot be read: %s", g.After+1, g.Seq, terminal.Sanitize(g.Cause.Error()))
	case g.First <= g.After:
		return fmt.Sprintf("OVERLAP: seq %d stands for events from %d, and %d was shown already", g.Seq, g.First, g.After)
	}
	return fmt.Sprintf("GAP: seq %d to %d did not come (%d after %d)", g.After+1, g.First-1, g.Seq, g.After)
}

// view shows events. One goroutine at a time.
type view interface {
	event(line []byte, e *schema.Event) error
	flush() error // what came so far must be visible
	interrupt()   // something else is about to write to the terminal
	close() error
}

// newView shows for programs or for people. A nil screen is found out.
func newView(out io.Writer, json bool, screen *terminal.Screen) view {
	if json {
		return &jsonView{w: bufio.NewWriterSize(out, 64<<10)}
	}
	if screen == nil {
		s := terminal.ScreenOf(out, os.LookupEnv)
		screen = &s
	}
	return newTimeline(out, *screen)
}

// jsonView prints lines as they came.
type jsonView struct{ w *bufio.Writer }

func (v *jsonView) event(line []byte, _ *schema.Event) error {
	if _, err := v.w.Write(line); err != nil {
		return err
	}
	return v.w.WriteByte('\n')
}

func (v *jsonView) flush() error { return v.w.Flush() }
func (v *jsonView) interrupt()   {}
func (v *jsonView) close() error { return v.w.Flush() }
