package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"agentstream/producers"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// Set has models by name.
type Set struct {
	// Other answers sessions that name no model of the set, if they are not answered once. nil: they fail.
	Other  worker.Answer
	models map[string]model
}

type model struct {
	provider string
	answer   worker.Answer
}

// Add adds models of a provider. A name that is there already is replaced.
func (s *Set) Add(provider string, answer worker.Answer, names ...string) {
	if s.models == nil {
		s.models = make(map[string]model)
	}
	for _, name := range names {
		s.models[name] = model{provider, answer}
	}
}

// Providers returns the names of the models by provider, sorted.
func (s *Set) Providers() map[string][]string {
	out := make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(s.models)) {
		p := s.models[name].provider
		out[p] = append(out[p], name)
	}
	return out
}

// description is what the models read of session.created.
type description struct {
	Once       bool   `json:"once"`
	Model      string `json:"model"`
	System     string `json:"system"`
	Tools      []tool `json:"tools"`
	Parameters params `json:"parameters"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type params struct {
	Temperature *float64 `json:"temperature"`
	TopP        *float64 `json:"top_p"`
	MaxTokens   int      `json:"max_tokens"`
	Reasoning   struct {
		Mode   string `json:"mode"`
		Budget int    `json:"budget_tokens"`
	} `json:"reasoning"`
}

// CanServe reports whether a session names a model of the set.
func (s *Set) CanServe(session json.RawMessage) bool {
	var d description
	return json.Unmarshal(session, &d) == nil && s.Has(d.Model)
}

// Has reports whether there is a model of a name.
func (s *Set) Has(name string) bool {
	_, ok := s.models[name]
	return ok
}

// Answer answers a question with the model that its session names. Its errors are an *Error where the model, or what
// was asked of it, is the reason.
func (s *Set) Answer(ctx context.Context, q *worker.Task) (stop string, err error) {
	var d description
	if err := json.Unmarshal(q.Session, &d); err != nil && s.Other == nil {
		return "", &Error{BadInput, fmt.Errorf("session.created: %w", err)}
	}
	if m, ok := s.models[d.Model]; ok {
		return m.answer(ctx, q)
	}
	if d.Once || s.Other == nil {
		return "", &Error{NotFound, fmt.Errorf("no model %.100q", d.Model)}
	}
	return s.Other(ctx, q)
}

// handOver ends the calls that a model has asked for: the client has them, and nothing waits for what comes of them.
func handOver(turn *producers.Turn) (any bool, err error) {
	for _, c := range turn.Calls() {
		err = errors.Join(err, c.Fail(&producers.ToolError{Code: schema.CodeToolCancelled,
			Err: errors.New("the client carries it out")}))
		any = true
	}
	return any, err
}
