package producers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"agentstream/schema"
)

// Decoder turns the bytes of a provider's answer into events. All adapters have this shape; see
// producers/provider.
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

// BeginModel says model.start. provider and model may be "".
func (t *Turn) BeginModel(provider, model string) (*ModelCall, error) {
	c := &ModelCall{turn: t, id: t.lane.run.cfg.NewID("model"), began: t.lane.run.cfg.Now()}
	return c, t.locked(schema.TypeModelStart, object(nil).text("call_id", c.id).str("model", model).str("provider", provider).end())
}

// End says model.end of a call that went well. usage is what encoding/json takes, or nil.
func (c *ModelCall) End(usage any) error {
	used, err := jsonOf(usage)
	if err != nil {
		return fmt.Errorf("producers: model call %s: usage: %w", c.id, err)
	}
	return c.end(used, nil)
}

// Fail says model.end of a call that failed.
func (c *ModelCall) Fail(cause error) error { return c.end(nil, cause) }

func (c *ModelCall) end(usage json.RawMessage, cause error) error {
	o := object(nil).text("call_id", c.id).yes("ok", cause == nil).raw("usage", usage).integer("duration_ms", c.turn.since(c.began))
	if cause != nil {
		o = o.raw("error", object(nil).text("type", "error").text("message", cause.Error()).end())
	}
	return c.turn.locked(schema.TypeModelEnd, o.end())
}

// Model streams one call of a model: model.start, what the decoder makes of the body as it comes, and
// model.end with usage and time. Afterwards Calls has the tools that the model wants. A body that breaks
// off ends its message as incomplete, and the error is returned; so is a model's own error, which the
// message then says. provider and model may be "".
func (t *Turn) Model(provider, model string, d Decoder, body io.Reader) error {
	c, err := t.BeginModel(provider, model)
	if err != nil {
		return err
	}
	var o modelOutcome
	if err = t.pour(d, body, &o); errors.Is(err, ErrOver) {
		return err
	}
	if err == nil {
		err = o.err()
	}
	return errors.Join(err, c.end(o.usage, err))
}

// pour says what the decoder makes of the body.
func (t *Turn) pour(d Decoder, body io.Reader, o *modelOutcome) error {
	buf := make([]byte, 16<<10)
	for {
		n, rerr := body.Read(buf)
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

// modelOutcome is what the events of one answer say of it.
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
	if json.Unmarshal(e.Payload, &f) != nil {
		return
	}
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
