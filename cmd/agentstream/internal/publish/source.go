package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/backoff"
	"agentstream/schema"
)

// item is one event on its way out.
type item struct {
	line []byte    // one JSON object without line breaks
	at   time.Time // its own ts; zero when it has none
	file string    // where it comes from, for errors; "" for events made here
	row  int       // line in the file, from 1; 0 where there is none

	stored chan<- struct{} // closed once it is; nil: nobody waits for that
}

// emit hands an item on; its error ends the source.
type emit func(item) error

// source emits all items of the command in order. An error comes after what was there before it, and
// after the end of the run where that is for us to say.
func (p *publishing) source(ctx context.Context, out emit) error {
	out = p.pace(ctx, out)
	var err error
	for i, in := range p.inputs {
		if err = p.file(ctx, in, i == 0, out); err != nil {
			break
		}
	}
	if ctx.Err() != nil || !p.mustFrame() || !p.began {
		return err
	}
	state, reason := p.state, p.reason
	if err != nil {
		state, reason = schema.StateError, "the recording cannot be read: "+reasonOf(err)
	}
	return errors.Join(err, out(lifecycle(state, reason, p.cmd.Child)))
}

// mustFrame reports whether the beginning and the end of the run are for us to write.
func (p *publishing) mustFrame() bool { return p.kind != nil && !p.kind.native && !p.cmd.NoLifecycle }

// file emits what one input holds, and the beginning of the run before the first.
func (p *publishing) file(ctx context.Context, in input, first bool, out emit) error {
	o, err := p.open(ctx, in)
	if err != nil {
		return err
	}
	defer o.close()
	if err := p.kindOf(o); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if first && p.mustFrame() {
		begin, err := p.mustBegin(ctx)
		if err != nil {
			return err
		}
		p.began, p.fresh = true, begin || p.minted
		if begin {
			if err := out(lifecycle(schema.StateRunning, "", p.cmd.Child)); err != nil {
				return err
			}
		}
	}
	return o.kind.read(ctx, p, o, out)
}

// mustBegin finds out whether the run, or the child, has to be begun.
func (p *publishing) mustBegin(ctx context.Context) (bool, error) {
	switch {
	case p.cmd.Child != "":
		return true, nil
	case p.minted:
		return false, nil
	}
	_, err := p.client.Run(p.runID).Info(ctx)
	if err != nil && !errors.Is(err, agentstream.ErrNotFound) {
		return false, fmt.Errorf("look for run %s: %w", p.runID, err)
	}
	return err != nil, nil
}

// pace holds items back as --pace wants.
func (p *publishing) pace(ctx context.Context, out emit) emit {
	if p.cmd.Pace != "original" {
		return out
	}
	pace := cli.Pacer{Most: p.cmd.MaxGap}
	warned := map[string]bool{}
	return func(it item) error {
		if it.at.IsZero() && it.file != "" && !warned[it.file] {
			warned[it.file] = true
			switch {
			case p.kind != nil && !p.kind.times:
				p.meter.Notice("%s: recordings of this format carry no times: --pace original has no effect", it.file)
			case it.row > 0:
				p.meter.Notice("%s:%d: an event without a ts goes at once", it.file, it.row)
			default:
				p.meter.Notice("%s: events without a time go at once", it.file)
			}
		}
		if d := pace.Until(it.at); d > 0 {
			if err := backoff.Sleep(ctx, d); err != nil {
				return err
			}
		}
		return out(it)
	}
}
