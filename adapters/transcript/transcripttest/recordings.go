package transcripttest

import (
	"encoding/json"
	"strings"
	"testing"

	"agentstream/adapters/gemini/geminitest"
	"agentstream/adapters/provider/providertest"
)

// Expectation is what one transcript comes to. Fields of other formats than its own are zero.
type Expectation struct {
	Format string `json:"-"`

	Text, Observations json.RawMessage // a digest; of openhands, observations are a count
	ToolCalls          []TranscriptCall

	Steps, HistoryMessages int // swe-agent
	Roles                  map[string]int
	ExitStatus             string
	ModelStats             any

	Kinds           map[string]int // openhands
	FirstID, LastID string

	Streams []geminitest.Expectation // gemini-cli
}

// TranscriptCall is one tool call.
type TranscriptCall struct {
	ID, Name, Kind string
	Input          any
	RawInput       providertest.Digest
}

// Recordings returns the expectations of the recorded transcripts by name (transcripts/FILE) and a way to read
// one.
func Recordings(t testing.TB) (map[string]Expectation, func(string) []byte) {
	t.Helper()
	want, read := providertest.Recordings[Expectation](t, 4, "transcripts")
	for name, e := range want {
		parts := strings.Split(name, ".")
		e.Format = parts[len(parts)-2]
		want[name] = e
	}
	return want, read
}
