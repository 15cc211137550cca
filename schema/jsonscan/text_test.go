package jsonscan_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"agentstream/schema/jsonscan"
)

// TestSplit: parts are strings of their own, and together the same text.
func TestSplit(t *testing.T) {
	units := []string{"a", "ü", "名", "😀", `\\n`, `\\\\`, `\"`, `\/`, `\u00fc`, `\ud83d\ude00`, `\ud800`, `\udc00`,
		`\ud800\u0041`}
	rng := rand.New(rand.NewPCG(4, 5))
	for range 2000 {
		var b strings.Builder
		for range 1 + rng.IntN(200) {
			b.WriteString(units[rng.IntN(len(units))])
		}
		inside, limit := b.String(), 32+rng.IntN(70)
		var joined []byte
		var decoded strings.Builder
		for _, part := range jsonscan.Split([]byte(inside), limit) {
			var s string
			if err := json.Unmarshal([]byte(`"`+string(part)+`"`), &s); err != nil || len(part) > limit {
				t.Fatalf("part %q of %q: %v", part, inside, err)
			}
			joined = append(joined, part...)
			decoded.WriteString(s)
		}
		var whole string
		if err := json.Unmarshal([]byte(`"`+inside+`"`), &whole); err != nil {
			t.Fatal(err)
		}
		if string(joined) != inside || decoded.String() != whole {
			t.Fatalf("%q became %q", inside, joined)
		}
	}
}

// TestUnescape agrees with the standard library wherever that loses nothing.
func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`plain`: "plain", `\b\f\n\r\t\/\\\"`: "\b\f\n\r\t/\\\"", `\u00fc\u540d`: "ü名", `\ud83d\ude00`: "😀",
		`\uD83D\uDE00x`: "😀x",
		`\ud83d`:        `\ud83d`, `\ud83dx`: `\ud83dx`, `\ude00\ud83d`: `\ude00\ud83d`, `\ud83d\ud83d\ude00`: `\ud83d😀`,
		`\u0000`: "\x00", `\\ud800`: `\ud800`,
	} {
		if got := string(jsonscan.Unescape([]byte(in))); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
		var std string
		if err := json.Unmarshal([]byte(`"`+in+`"`), &std); err != nil {
			t.Errorf("%s: %v", in, err)
		} else if !strings.ContainsRune(std, 0xfffd) && std != want {
			t.Errorf("%s: the standard library says %q", in, std)
		}
	}
}

// TestAppendString agrees with the standard library.
func TestAppendString(t *testing.T) {
	units := []string{"a", "{\"q\":", "\\", "\n", "\t", "\r", "\b", "\x00", "\x7f", "ü", "名", "😀", "<&>", "\u2028", "/"}
	rng := rand.New(rand.NewPCG(6, 7))
	for range 2000 {
		var s strings.Builder
		for range rng.IntN(8) {
			s.WriteString(units[rng.IntN(len(units))])
		}
		var want strings.Builder
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(s.String()); err != nil {
			t.Fatal(err)
		}
		if got := string(jsonscan.AppendString([]byte("before "), s.String())); got+"\n" != "before "+want.String() {
			t.Fatalf("%q is %s, want %s", s.String(), got, want.String())
		}
	}
}
