package chat

import (
	"context"
	"encoding/json"
	"errors"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// State is a projector that has a Reader.
type State interface {
	dialect.Stateful
	Chat() *Reader
}

// Say stores a message of a person, once for its id, which is message_id of the payload, and begins the run if it is
// not there. It returns the first record of the response, and the projector as it is then. The caller needs the scope
// write where the run is new.
func Say[P State](
	ctx context.Context, c *protocol.Call, run, id string, payload json.RawMessage,
) (first schema.Seq, p P, err error) {
	said := schema.Event{Type: schema.TypeCommandMessage, Payload: c.By(payload)}
	req := dialect.Request{Run: run}
	change := protocol.Change[P]{Request: req, Events: []schema.Event{said}, Allow: func(p P) error {
		if _, known := p.Chat().Said.Get(id); known {
			return protocol.ErrDone
		}
		return nil
	}}
	for {
		_, err = change.Once(ctx, c)
		if errors.Is(err, fanout.ErrNotFound) {
			err = create(ctx, c, run, said)
		}
		if !errors.Is(err, producers.ErrExists) {
			break
		}
	}
	if err != nil {
		return 0, p, err
	}
	_, p, err = protocol.Newest[P](ctx, c, req)
	if err != nil {
		return 0, p, err
	}
	first, _ = p.Chat().Said.Get(id)
	return first, p, nil
}

// create begins a run with a message.
func create(ctx context.Context, c *protocol.Call, run string, said schema.Event) error {
	if err := c.Allow(auth.ScopeWrite); err != nil {
		return err
	}
	events := []schema.Event{{Type: schema.TypeSessionCreated, Payload: []byte(`{}`)}, said}
	_, err := c.Append(ctx, run, events, producers.AppendOptions{MustBeNew: true, Whole: true})
	return err
}

// Decision answers a question about a call.
type Decision struct {
	ID       string
	Approved bool
	Why      string
}

// Decide stores answers to questions of one response, those that are not stored already, and returns the newest of
// the questions. Of two answers that contradict each other the later one wraps dialect.ErrGone. own reports whether a
// question is of the message that the client means; the error for one that is not wraps dialect.ErrNotFound.
func Decide[P State](
	ctx context.Context, c *protocol.Call, run string, list []Decision, own func(Question) bool,
) (last Question, p P, err error) {
	req := dialect.Request{Run: run}
	change := protocol.Change[P]{Request: req, Plan: func(_ schema.Head, p P) (events []schema.Event, err error) {
		last = Question{}
		for _, d := range list {
			q, open, err := p.Chat().decide(d, own)
			if err != nil {
				return nil, err
			}
			if open {
				events = append(events, d.event(c))
			}
			if q.Nth > last.Nth {
				last = q
			}
		}
		if len(events) == 0 {
			return nil, protocol.ErrDone
		}
		return events, nil
	}}
	if _, err = change.Once(ctx, c); err != nil {
		return last, p, err
	}
	_, p, err = protocol.Newest[P](ctx, c, req)
	return last, p, err
}

// decide reports whether an answer is to be stored: open is false when the same one is already.
func (r *Reader) decide(d Decision, own func(Question) bool) (q Question, open bool, err error) {
	q, ok := r.Questions.Get(d.ID)
	switch {
	case !ok || !own(q):
		return q, false, r.RefuseUnknown(d.ID)
	case q.Answered && q.Approved != d.Approved:
		return q, false, r.RefuseOther(d.ID)
	case !q.Answered && !r.IsWaiting(d.ID):
		return q, false, r.RefuseLate(d.ID)
	}
	return q, !q.Answered, nil
}

// event is the answer as agents read it.
func (d Decision) event(c *protocol.Call) schema.Event {
	result := "deny"
	if d.Approved {
		result = "allow"
	}
	answer := jsonscan.Object("{").Str("type", "user.tool_confirmation").Str("result", result)
	payload := jsonscan.Object("{").Str("request_id", d.ID).Raw("answer", answer.OptStr("deny_message", d.Why).End()).End()
	return schema.Event{Type: "command.answer", Payload: c.By(json.RawMessage(payload))}
}
