package langgraph

import (
	"testing"

	"agentstream/edge/dialect"
	"agentstream/protocols/langgraph/langgraphtest"
)

// TestFramesAreValid: every frame of every log holds to the schemas that are written from the protocol's text.
func TestFramesAreValid(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		for _, f := range project(t, projector(t, everything), records(t, s)) {
			if err := langgraphtest.Valid(f.Data); err != nil {
				t.Fatalf("%s: %v", s.Name, err)
			}
		}
	}
	if err := langgraphtest.Valid(AppendCommandError(nil, []byte("7"),
		dialect.Problem{Reason: dialect.ReasonFuture, Last: 4})); err != nil {
		t.Error(err)
	}
}
