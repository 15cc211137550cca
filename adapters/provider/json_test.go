package provider

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestSplit: parts are strings of their own, and together the same text.
func TestSplit(t *testing.T) {
	units := []string{"a", "ü", "名", "😀", `\\n`, `\\\\`, `\"`, `\/`, `\u00fc`, `\ud83d\ude00`, `\ud800`, `\udc00`, `\ud800\u0041`}
	rng := rand.New(rand.NewPCG(4, 5))
	for range 2000 {
		var b strings.Builder
		for range 1 + rng.IntN(200) {
			b.WriteString(units[rng.IntN(len(units))])
		}
		inside, limit := b.String(), 32+rng.IntN(70)
		var joined []byte
		var decoded strings.Builder
		for _, part := range Split([]byte(inside), limit) {
			var s string
			if err := json.Unmarshal(Enquote(part), &s); err != nil || len(part) > limit {
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
		`plain`: "plain", `\b\f\n\r\t\/\\\"`: "\b\f\n\r\t/\\\"", `\u00fc\u540d`: "ü名", `\ud83d\ude00`: "😀", `\uD83D\uDE00x`: "😀x",
		`\ud83d`: `\ud83d`, `\ud83dx`: `\ud83dx`, `\ude00\ud83d`: `\ude00\ud83d`, `\ud83d\ud83d\ude00`: `\ud83d😀`, `\u0000`: "\x00", `\\ud800`: `\ud800`,
	} {
		if got := string(Unescape([]byte(in))); got != want {
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

// TestFields: order, doubles and spelling of values stay.
func TestFields(t *testing.T) {
	in := ` { "b" : 1.10 , "a":[ 1, {"x":"}"} ],"b":-0.0, "\u0063\"":"\/" , "d":{}, "e":null, "f":true } `
	l, ok := Parse([]byte(in))
	if !ok || len(l) != 7 {
		t.Fatalf("%d Fields", len(l))
	}
	if got := string(l.Encode()); got != `{"b":1.10,"a":[ 1, {"x":"}"} ],"b":-0.0,"c\"":"\/","d":{},"e":null,"f":true}` {
		t.Errorf("%s", got)
	}
	if string(l.Get("b")) != "-0.0" || l.Get("zz") != nil || l.Str(`c"`) != "/" || l.Str("a") != "" {
		t.Error("get")
	}
	if got := string(l.Set("b", json.RawMessage("2")).Get("b")); got != "2" {
		t.Errorf("set: %s", got)
	}
	if got := Elements([]byte(`[ 1 , "a,]" ,[2], {} ]`)); len(got) != 4 || string(bytes.Join([][]byte{got[0], got[1], got[2], got[3]}, nil)) != `1"a,]"[2]{}` {
		t.Errorf("%s", got)
	}
	for _, none := range []string{"[]", "1", `"x"`, "null"} {
		if _, ok := Parse([]byte(none)); ok {
			t.Errorf("%s is an object", none)
		}
	}
}
