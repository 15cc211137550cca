package geminitest

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

// Load gives what is expected of the recordings of one folder by name (FOLDER/FILE), as it stands, and
// a way to read one. It wants at least that many.
func Load(t testing.TB, folder string, least int) (map[string]json.RawMessage, func(string) []byte) {
	t.Helper()
	recordings := Dir(t)
	raw, err := os.ReadFile(filepath.Join(recordings, "expected.json"))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the recordings are missing: %v", err)
		}
		t.Skipf("NOT TESTED AGAINST RECORDED STREAMS: %v", err)
	}
	var all, want = map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for name, v := range all {
		if strings.HasPrefix(name, folder+"/") {
			want[name] = v
		}
	}
	if len(want) < least {
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

// Recorded gives the expectations of the recorded answers by name (gemini/FILE) and a way to read one.
func Recorded(t testing.TB) (map[string]Expectation, func(string) []byte) {
	t.Helper()
	all, read := Load(t, "gemini", 8)
	want := make(map[string]Expectation)
	for name, v := range all {
		var e Expectation
		if err := json.Unmarshal(v, &e); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want[name] = e
	}
	return want, read
}

// Expectation is what one answer comes to.
type Expectation struct {
	Model           *string
	Text, Reasoning Digest
	Signatures      int
	ToolCalls       []Call
	DanglingCall    bool
	OtherParts      map[string]int
	StopReason      *string
	PromptFeedback  any
	Usage, Error    any
}

// Digest stands for a text.
type Digest struct {
	Bytes, Chars int
	SHA256       string `json:"sha256"`
}

// DigestOf makes the digest of a text.
func DigestOf(s string) Digest {
	sum := sha256.Sum256([]byte(s))
	return Digest{len(s), len([]rune(s)), hex.EncodeToString(sum[:])}
}

// Call is one tool call. ID is nil where the API gave none.
type Call struct {
	ID            *string
	Name, Kind    string
	Input         any
	InputComplete bool
	StreamedArgs  bool
}
