package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/adapters/transcript"
	agentstream "agentstream/clients/go"
	"agentstream/schema"
)

// format is one kind of file that can be published.
type format struct {
	name string
	// native reports that a file holds events: they begin and end the run themselves. Everything else is
	// recorded model calls, and the run is begun and ended around them.
	native bool
	times  bool // events carry the times at which they happened
	// read hands on what a file holds, and notes in p how it went.
	read func(ctx context.Context, p *publishing, in *opened, out emit) error
}

// formats is the table of all. transcript.Recognise knows them by the same names.
func formats() []*format {
	return []*format{
		{name: "native", native: true, times: true, read: nativeEvents},
		{name: transcript.LangGraph, native: true, times: true, read: graphEvents},
		{name: "anthropic", read: callReader(anthropic.NewDecoder)},
		{name: "openai-chat", read: callReader(openai.NewChatDecoder)},
		{name: "openai-responses", read: callReader(openai.NewResponsesDecoder)},
		{name: "gemini", read: callReader(gemini.NewDecoder)},
		{name: transcript.SWEAgent, read: transcriptReader(transcript.SWEAgent)},
		{name: transcript.OpenHands, times: true, read: transcriptReader(transcript.OpenHands)},
		{name: transcript.GeminiCLI, read: transcriptReader(transcript.GeminiCLI)},
		{name: transcript.ClaudeCode, times: true, read: transcriptReader(transcript.ClaudeCode)},
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

// callReader returns what reads recorded answers of a model's provider.
func callReader(newDecoder func(provider.Config) *provider.Decoder) func(context.Context, *publishing, *opened, emit) error {
	return func(ctx context.Context, p *publishing, in *opened, out emit) error {
		var went provider.Outcome
		kind := "text-only"
		err := p.emitRecording(ctx, in, provider.Decode(in, newDecoder(provider.Config{ChildID: p.cmd.Child})),
			func(e *schema.Event) error {
				went.See(e)
				if e.Type == schema.TypeToolStart {
					kind = "tool-roundtrip"
				}
				return out(itemOf(e, in.name))
			})
		p.state, p.reason = went.State()
		p.noteDamage(in, went.Damage())
		if n := went.CountKept(); n > 0 {
			p.meter.Notice("%s: %d events that the catalogue has no place for, or that cannot be read, are kept under custom.*", in.name, n)
		}
		if err != nil || p.state != schema.StateDone {
			return err
		}
		return p.step(kind, out)
	}
}

// step ends a model call that is whole, in a run whose steps can be counted because it began here.
func (p *publishing) step(kind string, out emit) error {
	if !p.fresh {
		return nil
	}
	payload := fmt.Sprintf(`{"step_index":%d,"step_kind":%q,"checkpoint_id":null}`, p.steps, kind)
	p.steps++
	return out(itemOf(&schema.Event{Type: schema.TypeStepBoundary, ChildID: p.cmd.Child,
		Payload: json.RawMessage(payload)}, ""))
}

// noteDamage notes that a recording is not whole; "" is that it is.
func (p *publishing) noteDamage(in *opened, why string) {
	if why != "" && p.damage == nil {
		p.damage = &badInput{in.name, 0, errors.New(why)}
	}
}

// transcriptReader returns what reads a transcript. A transcript says itself how the run went; where it begins
// and ends is for us to say, for there may be more files.
func transcriptReader(name string) func(context.Context, *publishing, *opened, emit) error {
	return func(ctx context.Context, p *publishing, in *opened, out emit) error {
		cfg := transcript.Config{RunID: p.runID, ChildID: p.cmd.Child, Lifecycle: true}
		if cfg.ChildID != "" {
			cfg.Path = []string{p.runID, cfg.ChildID}
		}
		p.state, p.reason = "", ""
		begun := false
		err := p.emitRecording(ctx, in, transcript.Decode(name, in, cfg), func(e *schema.Event) error {
			if e.Type != schema.TypeRunLifecycle || e.ChildID != p.cmd.Child {
				return out(itemOf(e, in.name))
			}
			l, err := schema.ParseLifecycle(e.Payload)
			switch {
			case err != nil:
				return err
			case l.State.Final():
				p.state = l.State
				if l.Reason != nil {
					p.reason = *l.Reason
				}
				return nil
			case p.cmd.NoLifecycle || !begun:
				begun = true
				return nil
			}
			return out(itemOf(e, in.name))
		})
		if p.state == "" {
			p.state, p.reason = schema.StateError, "the transcript holds nothing"
		}
		switch {
		case p.state != schema.StateError || !strings.Contains(p.reason, "the transcript "):
		case strings.Contains(p.reason, "while the conversation is "): // agents are killed; the file is whole
			p.meter.Notice("%s: %s", in.name, p.reason)
		default:
			p.noteDamage(in, p.reason)
		}
		return err
	}
}

// emitRecording hands on the events of a recording.
func (p *publishing) emitRecording(ctx context.Context, in *opened, events iter.Seq2[schema.Event, error],
	out func(*schema.Event) error) error {
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
	return item{line: agentstream.AppendNew(nil,
		&schema.Event{Type: schema.TypeRunLifecycle, ChildID: child, Payload: payload})}
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
		p.meter.Notice("%s: %s", o.name, r.words(o.packed))
	}
	if p.kind != nil && p.kind.native != o.kind.native {
		return fmt.Errorf("%s: holds %s, and another file holds %s: events and recordings do not make one run", o.name,
			o.kind.name, p.kind.name)
	}
	p.kind = o.kind
	return nil
}
