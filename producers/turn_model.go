package producers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"agentstream/schema"
	"agentstream/schema/assemble"
)

// Decoder turns the bytes of a provider's answer into events. All adapters have this shape; see
// adapters/provider.
type Decoder interface {
	Write(chunk []byte) ([]schema.Event, error)
	Close() []schema.Event
}

// ModelCall is one call of a model that the agent makes by itself. Most agents use [Turn.Model].
type ModelCall struct {
	turn  *Turn
	id    string
	began time.Time
}

// BeginModel emits model.start. provider and model may be "".
func (t *Turn) BeginModel(provider, model string) (*ModelCall, error) {
	if err := shortNames(provider, model); err != nil {
		return nil, fmt.Errorf("producers: run %s: begin a model call: %w", t.lane.run.cfg.RunID, err)
	}
	c := &ModelCall{turn: t, id: t.lane.run.cfg.NewID("model"), began: t.lane.run.cfg.Now()}
	return c, t.lockAndEmit(schema.TypeModelStart,
		object(nil).text("call_id", c.id).str("model", model).str("provider", provider).close())
}

// End emits model.end of a call that went well. usage is what encoding/json takes, or nil.
func (c *ModelCall) End(usage any) error {
	used, err := usageOf(usage)
	if err != nil {
		return fmt.Errorf("producers: model call %s: %w", c.id, err)
	}
	return c.emitEnd(true, used, nil)
}

// Fail emits model.end of a call that failed.
func (c *ModelCall) Fail(cause error) error { return c.emitEnd(false, nil, cause) }

// emitEnd emits model.end.
func (c *ModelCall) emitEnd(ok bool, usage json.RawMessage, cause error) error {
	o := object(nil).text("call_id", c.id).yes("ok", ok).raw("usage", usage).integer("duration_ms", c.turn.since(c.began))
	if !ok {
		o = o.raw("error", errorOf(cause))
	}
	r := c.turn.lane.run
	if err := c.turn.enter("end model call", c.id); err != nil {
		return err
	}
	defer r.leave()
	if c.turn.over || r.open.lane(c.turn.lane.id).Item(assemble.ModelStart, c.id) == nil {
		return fmt.Errorf("producers: run %s: end model call %s: %w", r.cfg.RunID, c.id, ErrOver)
	}
	return c.turn.emit(schema.TypeModelEnd, o.close())
}

// Model streams one call of a model: model.start, what the decoder makes of the body as it comes, and
// model.end with usage and time. Afterwards Calls has the tools that the model wants. A body that breaks
// off ends its message as incomplete, and the error is returned; so is a model's own error, which the
// message then has. provider and model may be "".
func (t *Turn) Model(provider, model string, d Decoder, body io.Reader) error {
	c, err := t.BeginModel(provider, model)
	if err != nil {
		return err
	}
	var o modelOutcome
	if err = t.stream(d, body, &o); errors.Is(err, ErrOver) {
		return err
	}
	if err != nil {
		err = errors.Join(err, t.failMessage(err))
	} else {
		err = o.err()
	}
	return errors.Join(err, c.emitEnd(err == nil, o.usage, err))
}

// failMessage ends the message that the lane has open, if it has one.
func (t *Turn) failMessage(cause error) (err error) {
	if err := t.enter("fail a message", ""); err != nil {
		return err
	}
	defer t.lane.run.leave()
	if m := t.lane.run.open.message(t.lane.id); m != nil && !t.over {
		closeMessage(m, Closing{Failed: true, Reason: cause.Error()}, func(typ string, payload json.RawMessage) {
			if err == nil {
				err = t.emit(typ, payload)
			}
		})
	}
	return err
}

// maxIdle is how many reads in a row may return nothing.
const maxIdle = 100

// stream emits what the decoder makes of the body.
func (t *Turn) stream(d Decoder, body io.Reader, o *modelOutcome) error {
	buf := make([]byte, 16<<10)
	for idle := 0; ; idle++ {
		if t.ctx.Err() != nil { // the body may go on for ever without an event
			return fmt.Errorf("producers: run %s: model's answer in turn %s: %w", t.lane.run.cfg.RunID, t.id,
				context.Cause(t.ctx))
		}
		n, rerr := body.Read(buf)
		if n > 0 {
			idle = 0
		} else if rerr == nil && idle > maxIdle {
			rerr = io.ErrNoProgress
		}
		events, err := d.Write(buf[:n])
		if rerr != nil {
			events = append(events, d.Close()...)
		}
		if err = errors.Join(err, t.Feed(events...)); err != nil {
			return err
		}
		for i := range events {
			o.see(&events[i])
		}
		if rerr == io.EOF {
			return nil
		}
		if rerr != nil {
			return fmt.Errorf("read the model's answer: %w", rerr)
		}
	}
}

// modelOutcome is what the events of one answer report of it.
type modelOutcome struct {
	usage  json.RawMessage
	failed string
}

func (o *modelOutcome) see(e *schema.Event) {
	if e.Type != schema.TypeMessageEnd {
		return
	}
	var f struct {
		Usage json.RawMessage `json:"usage"`
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(e.Payload, &f) // a member in an unexpected form hides no other
	if f.Usage != nil {
		o.usage = f.Usage
	}
	if o.failed = f.Error.Type; f.Error.Message != "" {
		o.failed = f.Error.Type + ": " + f.Error.Message
	}
}

func (o *modelOutcome) err() error {
	if o.failed == "" {
		return nil
	}
	return fmt.Errorf("the model's answer: %s", o.failed)
}
