package providertest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Dir returns the folder of the recordings, which lies beside the repository. Where there is none the test is skipped;
// in CI it fails.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return present(t, filepath.Join(filepath.Dir(dir), "shared", "recordings"))
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("not in the repository")
	return ""
}

func present(t testing.TB, recordings string) string {
	t.Helper()
	if _, err := os.Stat(recordings); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the recordings are missing: %v", err)
		}
		t.Skipf("NOT TESTED AGAINST RECORDED STREAMS: %v", err)
	}
	return recordings
}

// Recordings returns what is expected of the recordings of some folders by name (FOLDER/FILE), and a way to
// read one. It wants at least that many.
func Recordings[Expectation any](t testing.TB, least int, folders ...string) (map[string]Expectation,
	func(string) []byte) {
	t.Helper()
	recordings := Dir(t)
	raw, err := os.ReadFile(filepath.Join(recordings, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]Expectation)
	for _, folder := range folders {
		for name, v := range all {
			if !strings.HasPrefix(name, folder+"/") {
				continue
			}
			var e Expectation
			if err := json.Unmarshal(v, &e); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want[name] = e
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
