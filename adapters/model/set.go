package model

import (
	"cmp"
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
	Runtime    struct {
		Workflow json.RawMessage `json:"workflow"`
	} `json:"runtime"`
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

// Serves reports whether a session names a model of the set, or all models of its workflow are.
func (s *Set) Serves(session json.RawMessage) bool {
	var d description
	if json.Unmarshal(session, &d) != nil {
		return false
	}
	_, ok := s.models[d.Model]
	if len(d.Runtime.Workflow) == 0 {
		return ok
	}
	var w workflow
	if json.Unmarshal(d.Runtime.Workflow, &w) != nil {
		return true // it fails with words
	}
	for _, n := range w.Nodes {
		if cfg := cmp.Or(n.Generate, n.Stream); cfg != nil && (cfg.Model != "" || !ok) {
			if _, known := s.models[cfg.Model]; !known {
				return false
			}
		}
	}
	return true
}

// Answer answers a question with the model that its session names.
func (s *Set) Answer(ctx context.Context, q *worker.Question) (stop string, err error) {
	var d description
	if err := json.Unmarshal(q.Session, &d); err != nil && s.Other == nil {
		return "", fmt.Errorf("AI_INPUT_INVALID: session.created: %w", err)
	}
	if len(d.Runtime.Workflow) > 0 {
		return s.play(ctx, q, d)
	}
	if m, ok := s.models[d.Model]; ok {
		return m.answer(ctx, q)
	}
	if d.Once || s.Other == nil {
		return "", fmt.Errorf("AI_MODEL_NOT_FOUND: no model %.100q", d.Model)
	}
	return s.Other(ctx, q)
}

// handOver ends the calls that a model has asked for: the client has them, and nothing waits for what comes of them.
func handOver(turn *producers.Turn) (any bool, err error) {
	for _, c := range turn.Calls() {
		err = errors.Join(err, c.Fail(&producers.ToolError{Code: schema.CodeToolCancelled, Err: errors.New("the client carries it out")}))
		any = true
	}
	return any, err
}
