package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"agentstream/producers"
	"agentstream/schema"
)

// Command is one command that was handed to the agent.
type Command struct {
	Name  string // cancel, pause, resume, redirect, approve_plan, reject_plan, answer or message
	Child string // the lane that it is for; "" is the run itself
	// Event is the command as it is stored: id, seq, actor, payload.
	Event schema.Event
	// Redelivered reports that an earlier writer of the lane may have been handed this command, and has not
	// taken it.
	Redelivered bool

	from   *Reader
	fields map[string]json.RawMessage // of the payload
	taking sync.Mutex
}

func newCommand(from *Reader, at waiting, l *laneState) *Command {
	c := &Command{
		Name: strings.TrimPrefix(at.event.Type, commandPrefix), Child: at.lane, Event: *at.event,
		Redelivered: l.former && at.seq < l.claim, from: from,
	}
	if json.Unmarshal(c.Event.Payload, &c.fields) != nil {
		c.fields = nil // checked before it was stored; what does not fit has no fields
	}
	return c
}

// With returns a command like this one with another payload. Done of it takes this one.
func (c *Command) With(payload json.RawMessage) *Command {
	event := c.Event
	event.Payload = payload
	return newCommand(c.from, waiting{lane: c.Child, event: &event}, &laneState{})
}

// text returns a member of the payload that is a string, "" for any other.
func (c *Command) text(name string) string {
	var s string
	if json.Unmarshal(c.fields[name], &s) != nil {
		return ""
	}
	return s
}

// Reason returns why it was given, for people; "" without one. Of cancel, pause, reject_plan.
func (c *Command) Reason() string { return c.text("reason") }

// Instruction returns what to do instead. Of redirect.
func (c *Command) Instruction() string { return c.text("instruction") }

// PlanID returns the plan that is decided on; "" is the open one. Of approve_plan, reject_plan.
func (c *Command) PlanID() string { return c.text("plan_id") }

// RequestID returns the question that is answered. Of answer.
func (c *Command) RequestID() string { return c.text("request_id") }

// By returns who gave the command, by the credential; "" when unknown.
func (c *Command) By() string { return c.text("by") }

// Answer returns the answer as it was written, null when there was none. Of answer.
func (c *Command) Answer() json.RawMessage {
	if raw := c.fields["answer"]; raw != nil {
		return raw
	}
	return json.RawMessage("null")
}

// Content returns the message as it was written: a string, or a list of blocks. Of message.
func (c *Command) Content() json.RawMessage { return c.fields["content"] }

// Text returns the text of Content: the string, or the texts of its blocks, a line each.
func (c *Command) Text() string {
	if s := c.text("content"); s != "" {
		return s
	}
	var blocks []json.RawMessage
	if json.Unmarshal(c.fields["content"], &blocks) != nil {
		return ""
	}
	var texts []string
	for _, raw := range blocks {
		var b struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(raw, &b) == nil && b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// CommandsTaken returns the event that records that this command, and those of its lane before it, have been
// dealt with. An agent that writes it by itself must do so in the Publish call of what the command has brought
// about, or after it.
func (c *Command) CommandsTaken() schema.Event {
	return producers.CommandsTaken(c.Child, c.Event.Seq, c.Event.ID)
}

// Commit takes the command, and with it those of its lane that were handed over before it: no later writer is
// handed them again. The effects, events of the command's lane, are stored in the same pack as that, so
// that each of them is in the log exactly once, whatever is killed. Their Cause is the command where they
// name none. It returns when all is stored.
//
// ErrTaken: there are effects, and the command was taken before; nothing was stored. schema.ErrTooLarge:
// the effects do not fit one pack (about schema.MaxPackBytes). schema.ErrEnded: the run is over, and the
// effects do not begin with what goes on with it; a message must be taken before its run ends, or with the
// end. Other commands are settled by the end, and Done without effects is nil then. Otherwise the errors
// are those of [producers.Publisher.Append].
func (c *Command) Commit(ctx context.Context, effects ...schema.Event) error {
	c.taking.Lock()
	defer c.taking.Unlock()
	err := c.commit(ctx, effects)
	if err == nil {
		return nil
	}
	return fmt.Errorf("producers: take %s %d of %s: %w", c.Name, c.Event.Seq, c.from.key, err)
}

func (c *Command) commit(ctx context.Context, effects []schema.Event) error {
	c.from.mu.Lock()
	taken, settled := c.from.view.fate(c.Child, c.Event.Type, c.Event.Seq)
	c.from.mu.Unlock()
	switch {
	case taken && len(effects) > 0:
		return ErrTaken
	case taken || settled && len(effects) == 0:
		return nil
	}
	events, err := c.withTaken(effects)
	if err != nil {
		return err
	}
	if _, err := c.from.pub.Append(ctx, events...); err != nil {
		if errors.Is(err, schema.ErrEnded) && len(effects) == 0 && c.Event.Type != schema.TypeCommandMessage {
			return nil // settled, which is not known here yet
		}
		return err
	}
	c.from.mu.Lock()
	c.from.view.markTaken(c.Child, c.Event.Seq)
	c.from.mu.Unlock()
	return nil
}

// withTaken puts commands.taken after the effects, but before a final state: after it the log takes
// nothing more.
func (c *Command) withTaken(effects []schema.Event) ([]schema.Event, error) {
	events := make([]schema.Event, 0, len(effects)+1)
	end, size := len(effects), 0
	for i, e := range effects {
		if e.ChildID != c.Child {
			return nil, fmt.Errorf("effect %d is of lane %q, the command of %q", i+1, e.ChildID, c.Child)
		}
		if e.Cause == "" {
			e.Cause = c.Event.ID
		}
		if e.Type == schema.TypeRunLifecycle && end == len(effects) {
			if l, err := schema.ParseLifecycle(e.Payload); err == nil && l.State.Final() {
				end = i
			}
		}
		size += e.Size()
		events = append(events, e)
	}
	taken := c.CommandsTaken()
	if size += taken.Size(); size > schema.MaxPackBytes || len(effects)+1 > schema.MaxPackEvents {
		return nil, fmt.Errorf("%d effects of %d bytes: %w", len(effects), size, schema.ErrTooLarge)
	}
	events = append(events, taken)
	copy(events[end+1:], events[end:])
	events[end] = taken
	return events, nil
}
