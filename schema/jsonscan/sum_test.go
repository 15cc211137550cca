package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	"agentstream/schema/jsonscan"
	"agentstream/schema/schematest"
)

// pieces are texts as they stand in JSON: with escapes, halves of surrogate pairs, and what looks like structure.
var pieces = []string{
	``, `a`, `Hello`, ` world`, `\"`, `\\`, `\u00e9`, `é`, `\ud83d`, `\ude00`, `😀`, `\ud83d\ude00`, `\u0000`, `\/`,
	`{\"q\":`, `1}`, `\n`,
}

// units decodes the inside of a JSON string into UTF-16, by means of the standard library alone: each escape by
// itself, so that halves of pairs stay.
func units(in []byte) (out []uint16) {
	for len(in) > 0 {
		n := 1
		if in[0] == '\\' && in[1] == 'u' {
			var u uint16
			_, _ = fmt.Sscanf(string(in[2:6]), "%x", &u)
			out, in = append(out, u), in[6:]
			continue
		}
		if in[0] == '\\' {
			n = 2
		} else if i := bytes.IndexByte(in, '\\'); i >= 0 {
			n = i
		} else {
			n = len(in)
		}
		var s string
		_ = json.Unmarshal([]byte(`"`+string(in[:n])+`"`), &s)
		out, in = append(out, utf16.Encode([]rune(s))...), in[n:]
	}
	return out
}

// TestSum: two ways to write a text have one Sum, and the rest of a text after a beginning is what it says
// there, wherever that beginning ends.
func TestSum(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 8).Draw(rt, "text"), "")
		want := units([]byte(text))
		if got := jsonscan.SumOf([]byte(text)); int(got.Units) != len(want) {
			rt.Fatalf("%q has %d units, want %d", text, got.Units, len(want))
		}
		n := rapid.IntRange(0, len(want)).Draw(rt, "n")
		var head jsonscan.Sum
		for _, u := range want[:n] { // every unit escaped
			head.Add(fmt.Appendf(nil, `\u%04X`, u))
		}
		low, rest, ok := head.Rest([]byte(text))
		if low != 0 {
			rest = append(fmt.Appendf(nil, `\u%04x`, low), rest...)
		}
		if !ok || !slices.Equal(units(rest), want[n:]) {
			rt.Fatalf("%q behind %d units is %q (%v)", text, n, rest, ok)
		}
		if n > 0 {
			other := head
			other.AddUnit('x')
			another := jsonscan.SumOf([]byte("\x01"))
			for _, u := range want[1:n] { // as long, and another text
				another.AddUnit(u)
			}
			if _, _, ok := another.Rest([]byte(text)); ok {
				rt.Fatalf("another text is taken for the beginning of %q", text)
			}
			if _, _, ok := other.Rest([]byte(text)); ok && want[n:][0] != 'x' {
				rt.Fatalf("another text is taken for the beginning of %q", text)
			}
		}
	})
}

// FuzzWalk: reading JSON that is damaged ends, and reads what is valid as the standard library does.
func FuzzWalk(f *testing.F) {
	for _, s := range append(schematest.HostilePayloads(), `{"a":[1,{"b":"\\"}],"c":"x"}`, `{"a`, `{"a":`, `[1,`,
		`{"":}`, `{"\`, `"\u12`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range jsonscan.Members(b) {
			_ = jsonscan.SumOf(jsonscan.Inner(v))
			_, _, _ = jsonscan.Sum{Units: 3}.Rest(jsonscan.Inner(v))
			_, _ = jsonscan.WholeNumber(v)
		}
		n := 0
		for range jsonscan.Elements(b) {
			n++
		}
		var list []json.RawMessage
		if utf8.Valid(b) && json.Unmarshal(b, &list) == nil && n != len(list) {
			t.Fatalf("%s: %d elements, want %d", b, n, len(list))
		}
		var fields map[string]json.RawMessage
		if !utf8.Valid(b) || !json.Valid(b) || json.Unmarshal(b, &fields) != nil {
			return
		}
		for name, v := range jsonscan.Members(b) {
			if bytes.Equal(fields[string(name)], v) {
				delete(fields, string(name))
			}
		}
		if len(fields) > 0 {
			t.Fatalf("%s: not found are %v", b, fields)
		}
	})
}
