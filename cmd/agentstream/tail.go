package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"agentstream/schema"
)

// TailCmd follows a run and shows it, from any position, until its end.
type TailCmd struct {
	ServerFlags
	RunID string     `arg:"" name:"run" help:"Run to follow."`
	From  schema.Seq `help:"Begin behind this seq: the last event that was seen." placeholder:"SEQ"`
	JSON  bool       `name:"json" help:"Print the events as they came, one JSON object per line."`

	Streams `kong:"-"`
	// Screen overrides what is found out about the output. Nil looks at Out and the environment.
	Screen *Screen `kong:"-"`
}

// errGap makes the command fail at its end when what it showed was not the whole.
var errGap = errors.New("events are missing from the stream")

// Run follows the run until its end or until the context ends, which is the usual way to stop and no
// error. It fails when the server refuses, and at the end when events were missing.
func (c *TailCmd) Run(ctx context.Context) error {
	if err := schema.ValidRunID(c.RunID); err != nil {
		return fmt.Errorf("RUN: %w", err)
	}
	if c.From < 0 || c.From > schema.MaxSeq {
		return fmt.Errorf("--from %d: want 0 to %d", c.From, schema.MaxSeq)
	}
	v := c.view()
	cl, err := newClient(c.ServerFlags, func(format string, args ...any) {
		v.interrupt()
		fmt.Fprintf(c.err(), "agentstream: "+format+"\n", args...)
	})
	if err != nil {
		return err
	}
	defer cl.close()

	f := &follower{client: cl, run: c.RunID, last: c.From, view: v}
	err = f.follow(ctx)
	if cerr := v.close(); err == nil {
		err = cerr
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil // the reader of our output has seen enough
	case err != nil && ctx.Err() != nil:
		if f.last > c.From {
			fmt.Fprintf(c.err(), "agentstream: stopped behind seq %d; go on with --from %d\n", f.last, f.last)
		}
		return nil
	case err != nil:
		return fmt.Errorf("tail run %s: %w", c.RunID, err)
	case f.gaps > 0:
		return fmt.Errorf("tail run %s: %d gaps: %w", c.RunID, f.gaps, errGap)
	}
	return nil
}

// tailView shows events. One goroutine at a time.
type tailView interface {
	event(line []byte, e *schema.Event) error
	flush() error // what came so far must be visible
	interrupt()   // something else is about to write to the terminal
	close() error
}

func (c *TailCmd) view() tailView {
	if c.JSON {
		return &jsonView{w: bufio.NewWriterSize(c.out(), 64<<10)}
	}
	screen := c.Screen
	if screen == nil {
		s := screenOf(c.out(), os.LookupEnv)
		screen = &s
	}
	return newTimeline(c.out(), *screen)
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
