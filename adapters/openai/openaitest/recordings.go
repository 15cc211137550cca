package openaitest

import (
	"strings"
	"testing"

	"agentstream/adapters/provider/providertest"
)

// Recordings returns the expectations of the recorded streams by name (openai-chat/FILE and
// openai-responses/FILE) and a way to read one.
func Recordings(t testing.TB) (map[string]Expectation, func(string) []byte) {
	t.Helper()
	return providertest.Recordings[Expectation](t, 32, "openai-chat", "openai-responses")
}

// Chat reports whether a recording is of Chat Completions, and not of Responses.
func Chat(name string) bool { return strings.HasPrefix(name, "openai-chat/") }

// Expectation is what the provider's own client libraries make of one recording.
type Expectation struct {
	ID, Model                        string
	Text, DoneText                   providertest.Digest
	Refusal, Reasoning, RawReasoning providertest.Digest
	ToolCalls                        []ExpectedCall
	StopReason, Status               *string
	IncompleteReason                 *string
	Usage, Error                     any
	Choices                          []Choice
	Responses                        int
	Items                            []Item
	Framing                          struct{ Frames int }
}

// Choice is one choice of a completion.
type Choice struct {
	Index                    int
	Text, Refusal, Reasoning providertest.Digest
	ToolCalls                []ExpectedCall
	FinishReason             *string
	LogprobChunks            int
}

// Item is one item of a response.
type Item struct {
	OutputIndex int
	Type, ID    string
}

// ExpectedCall is one tool call of the client's.
type ExpectedCall struct {
	ID, Name, Kind, ItemID string
	Input                  any
	InputComplete          bool
	RawInput               providertest.Digest
}
