package producers_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// moment brings a run to a point where it may be interrupted. testdata/moments.json has them, for the writers in all
// languages.
type moment struct {
	Name  string
	Steps []step
}

// step is one call of the writer. What a step does not need is empty.
type step struct {
	Do, Lane, ID, Call, Type, Tool, Name, Kind, Checkpoint, Stop, Text, Permission, Provider string

	Model     *string // nil is "m1"
	MediaType string  `json:"media_type"`
	Data      []byte
	Pieces    []string
	Index     int
	Payload   json.RawMessage
	Input     json.RawMessage
	Output    json.RawMessage
	Usage     json.RawMessage
	Options   []string
}

func readMoments(t *testing.T) (all []moment) {
	t.Helper()
	text, err := os.ReadFile("testdata/moments.json")
	must(t, err, json.Unmarshal(text, &all))
	return all
}

// stage is a run in a test. The first error ends the test.
type stage struct {
	t        *testing.T
	ctx      context.Context
	sink     *told
	run      *producers.Run
	lanes    map[string]*producers.Lane
	turns    map[string]*producers.Turn
	messages map[string]*producers.Message
	models   map[string]*producers.ModelCall
	calls    map[string]*producers.Call
}

// newStage begins a run and its first turn. No time passes there: durations are told too.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{
		t: t, ctx: t.Context(), sink: new(told),
		turns: map[string]*producers.Turn{}, messages: map[string]*producers.Message{},
		models: map[string]*producers.ModelCall{}, calls: map[string]*producers.Call{},
	}
	n := map[string]int{}
	var err error
	s.run, err = producers.NewRun(producers.RunConfig{
		Sink: s.sink, RunID: "run_1", Now: func() time.Time { return time.Unix(0, 0) },
		NewID: func(word string) string {
			n[word]++
			return word + "_" + string(rune('0'+n[word]))
		},
	})
	must(t, err, s.run.State(s.ctx, schema.StateRunning, ""))
	s.lanes = map[string]*producers.Lane{"": &s.run.Lane}
	s.turns[""], err = s.run.Turn(s.ctx)
	must(t, err)
	return s
}

func (s *stage) play(m moment) {
	s.t.Helper()
	for _, st := range m.Steps {
		if err := s.perform(st); err != nil {
			s.t.Fatalf("%s: %s: %v", m.Name, st.Do, err)
		}
	}
}

// perform makes the call of a step.
func (s *stage) perform(st step) error {
	lane, turn, message, call := s.lanes[st.Lane], s.turns[st.Lane], s.messages[st.Lane], s.calls[st.ID]
	switch st.Do {
	case "message", "call", "spawn", "model":
		return s.begin(st)
	case "text":
		return message.Text(st.Text)
	case "reasoning":
		return message.Reasoning(st.Text)
	case "sign":
		return message.Sign(st.Text)
	case "data":
		return message.Data(st.Kind, st.MediaType, st.Name, st.Data)
	case "end":
		return message.End(st.Stop, st.Usage)
	case "fail_message":
		return message.Fail(errors.New(st.Text))
	case "ready":
		return call.ReadyAs(st.Input, st.Permission)
	case "run":
		return call.Run()
	case "output":
		return call.Output(st.Text)
	case "finish":
		return call.Finish(st.Output)
	case "fail":
		return call.Fail(errors.New(st.Text))
	case "user":
		return turn.User(st.Text)
	case "task":
		_, err := turn.Task(st.Name)
		return err
	case "model_ended":
		return s.models[st.Lane].End(st.Usage)
	case "model_failed":
		return s.models[st.Lane].Fail(errors.New(st.Text))
	case "end_turn":
		return turn.End("end_turn")
	case "finish_lane":
		return lane.Finish(s.ctx)
	case "emit":
		return lane.Emit(s.ctx, st.Type, st.Payload)
	case "ask":
		return lane.Ask(s.ctx, st.ID, st.Text, st.Options, nil)
	case "step":
		return lane.Step(s.ctx, st.Index, st.Kind, st.Checkpoint)
	}
	return errors.New("there is no such step")
}

// begin makes the call of a step that begins something, and keeps that for later steps.
func (s *stage) begin(st step) (err error) {
	model := "m1"
	if st.Model != nil {
		model = *st.Model
	}
	switch st.Do {
	case "message":
		s.messages[st.Lane], err = s.turns[st.Lane].Message(producers.MessageInfo{Model: model})
	case "model":
		s.models[st.Lane], err = s.turns[st.Lane].BeginModel(st.Provider, model)
	case "spawn":
		s.lanes[st.ID], err = s.lanes[st.Lane].Spawn(s.ctx, st.ID, "work", st.Call)
		if err == nil {
			s.turns[st.ID], err = s.lanes[st.ID].Turn(s.ctx)
		}
	case "call":
		tool := st.Tool
		if tool == "" {
			tool = "tool_" + st.ID
		}
		var c *producers.Call
		if c, err = s.messages[st.Lane].Call(st.ID, tool); err != nil {
			return err
		}
		s.calls[c.ID()] = c
		for _, piece := range st.Pieces {
			err = errors.Join(err, c.Input(piece))
		}
	}
	return err
}
