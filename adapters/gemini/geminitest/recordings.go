package geminitest

import (
	"testing"

	"agentstream/adapters/provider/providertest"
)

// Recordings returns the expectations of the recorded answers by name (gemini/FILE) and a way to read one.
func Recordings(t testing.TB) (map[string]Expectation, func(string) []byte) {
	t.Helper()
	return providertest.Recordings[Expectation](t, 8, "gemini")
}

// Expectation is what one answer comes to.
type Expectation struct {
	Model           *string
	Text, Reasoning providertest.Digest
	Signatures      int
	ToolCalls       []ExpectedCall
	DanglingCall    bool
	OtherParts      map[string]int
	StopReason      *string
	PromptFeedback  any
	Usage, Error    any
}

// ExpectedCall is one tool call. ID is nil where the API sent none.
type ExpectedCall struct {
	ID            *string
	Name, Kind    string
	Input         any
	InputComplete bool
	StreamedArgs  bool
}
