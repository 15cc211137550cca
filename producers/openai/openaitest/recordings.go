package openaitest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Dir is where the recordings lie: beside the repository.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(filepath.Dir(dir), "shared", "recordings")
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("not in the repository")
	return ""
}

// Recorded gives the expectations of the recorded streams by name (openai-chat/FILE and
// openai-responses/FILE) and a way to read one.
func Recorded(t testing.TB) (map[string]Expectation, func(string) []byte) {
	t.Helper()
	recordings := Dir(t)
	raw, err := os.ReadFile(filepath.Join(recordings, "expected.json"))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the recordings are missing: %v", err)
		}
		t.Skipf("NOT TESTED AGAINST RECORDED STREAMS: %v", err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]Expectation)
	for name, v := range all {
		if !Chat(name) && !strings.HasPrefix(name, "openai-responses/") {
			continue
		}
		var e Expectation
		if err := json.Unmarshal(v, &e); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want[name] = e
	}
	if len(want) < 32 {
		t.Fatalf("only %d recordings", len(want))
	}
	return want, func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(recordings, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// Chat says that a recording is of Chat Completions, and not of Responses.
func Chat(name string) bool { return strings.HasPrefix(name, "openai-chat/") }

// Expectation is what the provider's own client libraries make of one recording.
type Expectation struct {
	ID, Model                        string
	Text, DoneText                   Digest
	Refusal, Reasoning, RawReasoning Digest
	ToolCalls                        []Call
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
	Text, Refusal, Reasoning Digest
	ToolCalls                []Call
	FinishReason             *string
	LogprobChunks            int
}

// Item is one item of a response.
type Item struct {
	OutputIndex int
	Type, ID    string
}

// Call is one tool call of the client's.
type Call struct {
	ID, Name, Kind, ItemID string
	Input                  any
	InputComplete          bool
	RawInput               Digest
}

// Digest stands for a text.
type Digest struct {
	Bytes, Chars int
	SHA256       string `json:"sha256"`
}

func digestOf(s string) Digest {
	sum := sha256.Sum256([]byte(s))
	return Digest{len(s), len([]rune(s)), hex.EncodeToString(sum[:])}
}
