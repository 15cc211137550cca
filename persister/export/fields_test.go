package export

import (
	"encoding/json"
	"testing"

	"agentstream/schema/schematest"
)

// What the scanner reads of an object is what encoding/json reads of it, the last of two fields included.
func FuzzFields(f *testing.F) {
	for _, p := range schematest.HostilePayloads() {
		f.Add([]byte(p))
	}
	for _, p := range []string{`{}`, ` { "a" : [1,{"b":"}"}] , "a":"x\"y\\" } `, `{"\u0061":true,"b":null,"c":-1.5e3}`,
		`[]`, `{"a"`, `{"a":1`, `{"a":"`, `{"a":]}`} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		got := fields{}.read(payload) // never panics
		var want map[string]json.RawMessage
		if json.Unmarshal(payload, &want) != nil {
			return
		}
		for name, v := range want {
			if raw := got.Raw(name); string(raw) != string(v) {
				// Names that are not valid UTF-8 cannot be in a payload.
				if json.Valid(payload) && validNames(got) {
					t.Fatalf("%q: %q, want %q of %q", name, raw, v, payload)
				}
				return
			}
			var text string
			if v[0] == '"' && json.Unmarshal(v, &text) == nil {
				if s := got.str(name); s == nil || *s != text && validNames(got) && json.Valid(v) && valid(*s) == *s {
					t.Fatalf("%q: not %q of %q", name, text, payload)
				}
			} else if got.str(name) != nil {
				t.Fatalf("%q is no text in %q", name, payload)
			}
		}
	})
}

func validNames(l fields) bool {
	for _, f := range l.Fields {
		if valid(string(f.Name)) != string(f.Name) {
			return false
		}
	}
	return true
}

func TestFieldsTakeNumbersThatFit(t *testing.T) {
	l := fields{}.read([]byte(`{"a":7,"b":-7,"c":1.5,"d":12345678901234567890,"e":1e400,"f":"7","g":true,"h":false,"i":0}`))
	for name, want := range map[string]int64{"a": 7, "i": 0} {
		if n := l.whole(name); n == nil || *n != want {
			t.Errorf("%s: %v, want %d", name, n, want)
		}
	}
	for _, name := range []string{"b", "c", "d", "e", "f", "g", "nothing"} {
		if n := l.whole(name); n != nil {
			t.Errorf("%s: %d, want none", name, *n)
		}
	}
	if x := l.float("c"); x == nil || *x != 1.5 || l.float("e") != nil || l.float("f") != nil {
		t.Error("floats")
	}
	if g, h := l.bool("g"), l.bool("h"); g == nil || !*g || h == nil || *h || l.bool("a") != nil {
		t.Error("bools")
	}
}
