package schema

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"agentstream/schema/jsonscan"
)

// quickSeeds are texts at which a scanner and the standard library may part.
var quickSeeds = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `-`, `01`, `1.`, `.5`, `1.5e`, `1.5e+`, `1e-7`, `1E9`, `+1`, `0x1`, `tru`, `true`,
	`false `, "null\n", `nul`, `nullx`,
	`{"a":1,}`, `{"a" 1}`, `{"a":1 "b":2}`, `{,}`, `[1,]`, `[,1]`, `[1 2]`, `{"a":[{"b":[]}]}`, `{"a":1}x`,
	` {"a" : [ 1 , 2 ] } `, `{a:1}`, `{1:1}`,
	`"\"`, `"\\"`, `"\\\"`, `"\u12"`, `"\u12G4"`, `"\uD800"`, `"\uabCD"`, "\"\\u\x101\x102\x103\x104\"", `"\x"`, `"\`,
	`"`, "\"\x01\"", "\"a\x1fb\"", "\"\x7f\"",
	"\"12345678\n\"", "\"\x00\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\"é漢😀\"", "\xef\xbb\xbf{}", "{\"a\":\"\\\"\\\"\\\"\"}",
	`{"type":"text.delta","payload":{"text":"a"}}`, `{"type":"text.delta","payload":{"text":"a"},"x":{"y":1}}`,
	`{"type":"text.delta","payload":{"t\u0065xt":"a"}}`, `{"type":"text.delta","payload":{"text":1}}`,
	`{"type":"text.delta","payload":{"text":"a","text":1}}`,
	`{"typ\u0065":"text.delta","payload":{"text":"a"}}`,
	`{"type":"text.delta","type":"text.delta","payload":{"text":"a"}}`,
	"{\"type\":\"text.delta\",\"payload\":{\n\"text\":\"a\"}}", `{"type":"custom.x","payload":{}}`,
	`{"type":"custom.x"}`, `{"type":"text\u002edelta","payload":{"text":"a"}}`,
	`{"type":null,"payload":{}}`, `{"type":"progress","payload":null}`,
	`{"type":"progress","child_id":null,"seq":null,"path":null}`,
	`{"type":"progress","child_id":"c","id":"evt_1","ts":"2026-01-01T00:00:00Z","run_id":"run","seq":3,"turn_id":"t","path":["run","c"],"cause":"e","actor":"agent","payload":{"a":1}}`,
	`{"type":"progress","run_id":"other"}`, `{"type":"progress","first_seq":1}`, `{"type":"progress","child_id":"run"}`,
	`{"type":"progress","seq":0}`,
	`{"type":"run.lifecycle","payload":{"state":"done"}}`, `{"type":"run.lifecycle","payload":{"state":"no"}}`,
	`{"type":"nothing"}`,
}

// agree holds the quick way to the careful one for one text.
func agree(t testing.TB, data []byte) {
	t.Helper()
	good := utf8.Valid(data) && json.Valid(data) && depthOf(data) <= maxDepth
	if quick := jsonscan.Valid(data, maxDepth); quick != good {
		t.Fatalf("%q: quick says %v, the standard library %v", data, quick, good)
	}
	if good != (checkJSON(data) == nil) {
		t.Fatalf("%q: checkJSON says %v", data, !good)
	}
	for _, typ := range []string{TypeTextDelta, TypeDataDelta} {
		e := Event{Type: typ, Payload: data}
		if !e.plainDelta("run") {
			continue // it may leave anything to the careful way
		}
		if err := e.prepare("run"); err != nil || string(e.Payload) != string(data) {
			t.Fatalf("%s %q: quick takes what is refused or changed: %v", typ, data, err)
		}
	}
	quick, ok := scanNew("run", data)
	careful, err := decodeNew("run", data)
	if !ok {
		return // it may leave anything to the careful way
	}
	if err != nil {
		t.Fatalf("%q: quick takes what is refused: %v", data, err)
	}
	if !reflect.DeepEqual(quick, careful) {
		t.Fatalf("%q:\nquick   %+v\ncareful %+v", data, quick, careful)
	}
}

// depthOf counts levels in valid JSON.
func depthOf(data []byte) (most int) {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			most = max(most, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return most
}

func TestQuickAgreesWithTheCarefulWay(t *testing.T) {
	for _, s := range quickSeeds {
		agree(t, []byte(s))
	}
	for _, n := range []int{maxDepth - 3, maxDepth - 2, maxDepth - 1, maxDepth, maxDepth + 1} {
		agree(t, []byte(strings.Repeat("[", n)+strings.Repeat("]", n)))
		agree(t, []byte(strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n)))
		agree(t, []byte(`{"type":"progress","payload":`+strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n)+`}`))
	}
	// Damage at every byte of an event that has everything.
	whole := quickSeeds[len(quickSeeds)-8]
	for i := range whole {
		for _, c := range []string{"", `"`, `\`, "{", "}", "]", ",", ":", " ", "\n", "\x00", "\x1f", "0", "\xc3"} {
			agree(t, []byte(whole[:i]+c+whole[i:]))
			agree(t, []byte(whole[:i]+c+whole[i+1:]))
		}
	}
}

// Damage at every byte of a delta, and of the envelope that it comes in.
func TestPlainDeltasAgreeWithTheCarefulWay(t *testing.T) {
	whole := `{"text":"a \" b \\ é","index":0, "more" : [1,{"text":2}]}`
	for i := range len(whole) + 1 {
		for _, c := range []string{"", `"`, `\`, "{", "}", "]", ",", ":", " ", "\n", "\r", "\x00", "0", "\xc3",
			`"text":"a",`, `"text":1,`, `"t\u0065xt":1,`} {
			agree(t, []byte(whole[:i]+c+whole[i:]))
			agree(t, []byte(whole[:i]+c+whole[min(i+1, len(whole)):]))
		}
	}
	good := Event{Type: TypeTextDelta, Payload: []byte(whole)}
	for name, change := range map[string]func(*Event){
		"type": func(e *Event) { e.Type = "no.such" }, "own id": func(e *Event) { e.ID = "a b" }, "own time": func(e *Event) { e.TS = "now" },
		"another run": func(e *Event) { e.RunID = "other" }, "child": func(e *Event) { e.ChildID = "a.b" }, "child is the run": func(e *Event) { e.ChildID = "run" },
		"child is the root lane": func(e *Event) { e.ChildID = RootLane }, "path": func(e *Event) { e.Path = []string{"a.b"} },
		"turn": func(e *Event) { e.TurnID = strings.Repeat("t", maxShortText+1) }, "extra": func(e *Event) { e.Extra = []byte(`"id":1`) },
		"first_seq": func(e *Event) { e.FirstSeq = 1 }, "large": func(e *Event) { e.Payload = []byte(`{"text":"` + strings.Repeat("a", MaxEventBytes) + `"}`) },
		"no payload": func(e *Event) { e.Payload = nil }, "a list": func(e *Event) { e.Payload = []byte(`["text"]`) },
	} {
		e := good
		if !e.plainDelta("run") {
			t.Fatal("a plain delta is left to the careful way")
		}
		change(&e)
		if err := e.Prepare("run"); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestQuickTakesWhatIsUsual(t *testing.T) {
	for _, s := range []string{
		`{"type":"text.delta","payload":{"text":"a \" b \\ é"}}`,
		`{"payload":{"text":"a"},"type":"text.delta","child_id":"c1"}`,
		`{"type":"run.lifecycle","payload":{"state":"done"}}`,
		`{"type":"tool.end","id":"evt_1","payload":{"call_id":"c","ok":true,"output":[1.5e3,{"a":null}]}}`,
	} {
		if _, ok := scanNew("run", []byte(s)); !ok {
			t.Errorf("%s is left to the careful way", s)
		}
	}
}

// FuzzQuick holds the quick way to the careful one.
func FuzzQuick(f *testing.F) {
	for _, s := range quickSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, data) })
}
