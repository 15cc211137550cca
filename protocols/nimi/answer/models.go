package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"agentstream/adapters/model"
	"agentstream/producers"
	"agentstream/producers/worker"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// Models answers sessions with the models of a set.
type Models struct{ *model.Set }

// CanServe reports whether a session names a model of the set, or all models of its workflow are.
func (m Models) CanServe(created json.RawMessage) bool {
	var s session
	if json.Unmarshal(created, &s) != nil || len(s.Runtime.Workflow) == 0 {
		return m.Set.CanServe(created)
	}
	var w workflow
	if json.Unmarshal(s.Runtime.Workflow, &w) != nil {
		return true // it fails with words
	}
	for _, n := range w.Nodes {
		cfg := cmp.Or(n.Generate, n.Stream)
		if cfg != nil && !m.Has(cmp.Or(cfg.Model, s.Model)) {
			return false
		}
	}
	return true
}

// Answer answers a question with the model that its session names, or plays its workflow.
func (m Models) Answer(ctx context.Context, q *worker.Task) (stop string, err error) {
	var s session
	_ = json.Unmarshal(q.Session, &s) // what does not fit has no workflow
	if len(s.Runtime.Workflow) > 0 {
		stop, err = m.play(ctx, q, s)
	} else {
		stop, err = m.Set.Answer(ctx, q)
	}
	return stop, inWords(err)
}

// codes are the protocol's words for why a model has not answered.
var codes = map[model.Kind]runtimev1.ReasonCode{
	model.Internal:    runtimev1.ReasonCode_AI_PROVIDER_INTERNAL,
	model.BadInput:    runtimev1.ReasonCode_AI_INPUT_INVALID,
	model.NotFound:    runtimev1.ReasonCode_AI_MODEL_NOT_FOUND,
	model.Limited:     runtimev1.ReasonCode_AI_PROVIDER_RATE_LIMITED,
	model.Timeout:     runtimev1.ReasonCode_AI_PROVIDER_TIMEOUT,
	model.Unavailable: runtimev1.ReasonCode_AI_PROVIDER_UNAVAILABLE,
	model.Broken:      runtimev1.ReasonCode_AI_STREAM_BROKEN,
}

// inWords puts the code of a model's error before its text.
func inWords(err error) error {
	var e *model.Error
	if errors.As(err, &e) {
		return because(codes[e.Kind], err)
	}
	return err
}

// because puts a code before the text of an error.
func because(code runtimev1.ReasonCode, err error) error { return fmt.Errorf("%s: %w", code, err) }

// mismatch is the error of a node that is not what its type says.
func mismatch(format string, args ...any) error {
	return because(runtimev1.ReasonCode_WF_NODE_CONFIG_MISMATCH, fmt.Errorf(format, args...))
}

// Reasons are the protocol's words for runs that are ended in the place of their writer.
func Reasons() producers.Reasons {
	return producers.Reasons{
		Timeout: runtimev1.ReasonCode_AI_PROVIDER_TIMEOUT.String(),
		Broken:  runtimev1.ReasonCode_AI_STREAM_BROKEN.String(),
	}
}
