package gemini

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// segment is a step as it is written: a name, an index, or a name in quotes.
var segment = regexp.MustCompile(`^(?:\.([^.[]+)|\[(\d{1,7})\]|\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\])`)

// expectedPath reads a path as its grammar is written.
func expectedPath(s string) (path []step, ok bool) {
	rest, ok := strings.CutPrefix(s, "$")
	if !ok || len(s) > maxPath || !utf8.ValidString(s) {
		return nil, false
	}
	for rest != "" {
		m := segment.FindStringSubmatch(rest)
		if m == nil || len(path) >= maxSteps {
			return nil, false
		}
		rest = rest[len(m[0]):]
		st := step{name: m[1], in: '{'}
		if m[2] != "" {
			st.in = '['
			st.index, _ = strconv.Atoi(m[2])
		}
		if quoted := m[3]; quoted != "" {
			inner := requote.Replace(quoted[1 : len(quoted)-1])
			if json.Unmarshal([]byte(`"`+inner+`"`), &st.name) != nil {
				return nil, false
			}
		}
		path = append(path, st)
	}
	return path, len(path) > 0 && path[0].in == '{'
}

// TestPaths: paths of all kinds, whole and damaged, are read as their grammar says.
func TestPaths(t *testing.T) {
	parts := []string{".", "a", "é", "[", "]", "[0]", "[7]", "[1234567]", "[12345678]", "[-1]", "[+1]", "[1_0]", "[]",
		"['b c']", `["d"]`, "'", `"`,
		`\`, `\'`, `\"`, `\\`, `\n`, `\u0041`, `\ud83d`, "\n", "\x00", "\xff", "$", " ", ".a", ".long name",
		`['it\'s']`, `["a'b"]`, `['a"b']`, "['']"}
	r := rand.New(rand.NewPCG(1, 2))
	read := 0
	for range 100_000 {
		s := strings.Repeat("$", r.IntN(20)/19^1)
		for range r.IntN(6) {
			s += parts[r.IntN(len(parts))]
		}
		got, ok := parsePath(nil, s)
		want, isPath := expectedPath(s)
		if ok != isPath || ok && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %v %v, want %v %v", s, got, ok, want, isPath)
		}
		if ok {
			read++
		}
	}
	if read < 5_000 {
		t.Errorf("%d of 100000 were paths", read)
	}
	for n, want := range map[int]bool{maxSteps: true, maxSteps + 1: false} {
		if _, ok := parsePath(nil, "$"+strings.Repeat(".a", n)); ok != want {
			t.Errorf("%d steps: %v", n, ok)
		}
	}
}

// TestPathsCostNothing: a path of names is read into the room of the one before.
func TestPathsCostNothing(t *testing.T) {
	path, _ := parsePath(nil, "$.a.b[0].c")
	if n := testing.AllocsPerRun(100, func() { path, _ = parsePath(path[:0], "$.a.b[12].c") }); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
