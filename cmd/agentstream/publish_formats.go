package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/producers/anthropic"
	"agentstream/producers/provider"
	"agentstream/schema"
)

// format is one kind of file that can be published.
type format struct {
	name string
	// native says that a file holds events: they begin and end the run themselves. Everything else is
	// recorded model calls, and the run is begun and ended around them.
	native bool
	times  bool // events carry the times at which they happened
	// read hands on what a file holds, and notes in p how it went.
	read func(ctx context.Context, p *publishing, in *opened, out emit) error
	// holds says whether a frame, an object within the file, is of this kind. name is that of the
	// server-sent event.
	holds func(name string, f frameShape) bool
}

// formats is the table of all. Whoever is asked first comes first.
func formats() []*format {
	return []*format{
		{name: "native", native: true, times: true, read: nativeEvents, holds: holdsNative},
		{name: "anthropic", read: calls(anthropic.NewDecoder), holds: holdsAnthropic},
	}
}

func formatNamed(name string) *format {
	for _, f := range formats() {
		if f.name == name {
			return f
		}
	}
	return nil
}

// calls reads recorded answers of a model's provider.
func calls(newDecoder func(provider.Config) *provider.Decoder) func(context.Context, *publishing, *opened, emit) error {
	return func(ctx context.Context, p *publishing, in *opened, out emit) error {
		var went provider.Outcome
		err := p.recorded(ctx, in, provider.Decode(in, newDecoder(provider.Config{ChildID: p.cmd.Child})), func(e *schema.Event) error {
			went.See(e)
			return out(itemOf(e, in.name))
		})
		p.state, p.reason = went.End()
		if damage := went.Damage(); damage != "" && err == nil && p.damage == nil {
			p.damage = &badInput{in.name, 0, errors.New(damage)}
		}
		return err
	}
}

// recorded hands on the events of a recording.
func (p *publishing) recorded(ctx context.Context, in *opened, events iter.Seq2[schema.Event, error], out func(*schema.Event) error) error {
	for e, err := range events {
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return &badInput{in.name, 0, err}
		}
		if err := out(&e); err != nil {
			return err
		}
	}
	return nil
}

func itemOf(e *schema.Event, file string) item {
	at, _ := time.Parse(time.RFC3339Nano, e.TS) // most have none
	return item{line: agentstream.AppendNew(nil, e), at: at, file: file}
}

// lifecycle makes a run.lifecycle event.
func lifecycle(state schema.RunState, reason, child string) item {
	l := schema.Lifecycle{State: state}
	if reason != "" {
		l.Reason = &reason
	}
	payload, _ := json.Marshal(l) // two strings always encode
	return item{line: agentstream.AppendNew(nil, &schema.Event{Type: schema.TypeRunLifecycle, ChildID: child, Payload: payload})}
}

// kindOf finds out what an opened input holds, unless the command line says it.
func (p *publishing) kindOf(o *opened) error {
	if o.kind == nil {
		r, err := recognise(o.Reader, o.name)
		o.Reader = r.body
		if err != nil {
			return &badInput{o.name, 0, err}
		}
		o.kind = r.kind
		p.meter.notice("%s: %s", o.name, r.words(o.packed))
	}
	if p.kind != nil && p.kind.native != o.kind.native {
		return fmt.Errorf("%s: holds %s, and another file holds %s: events and recordings do not make one run", o.name, o.kind.name, p.kind.name)
	}
	p.kind = o.kind
	return nil
}
