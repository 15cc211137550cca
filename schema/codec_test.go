package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

var acme = schema.RunKey{Tenant: "acme", Run: testRun}

// everyEvent returns the numbered events of all scenarios and of generated runs.
func everyEvent() []schema.Event {
	var all []schema.Event
	for _, s := range append(schematest.All(), schematest.Generate(1500, 11), schematest.Generate(1500, 12)) {
		all = append(all, schematest.NumberEvents(testRun, s)...)
	}
	return all
}

// TestRoundTrip is T1: what was encoded decodes to an equal event, with unknown envelope fields and
// the text of numbers as they were, and encodes to the same bytes again.
func TestRoundTrip(t *testing.T) {
	for _, e := range everyEvent() {
		line := e.AppendLine(nil)
		got, err := schema.DecodeLine(line)
		if err != nil {
			t.Fatalf("%v\n%.500s", err, line)
		}
		if !reflect.DeepEqual(normal(e), normal(got)) {
			t.Fatalf("\nwant %.800v\n got %.800v", normal(e), normal(got))
		}
		if again := got.AppendLine(nil); !bytes.Equal(again, line) {
			t.Fatalf("\nwant %.800s\n got %.800s", line, again)
		}
		if bytes.ContainsAny(line, "\n\r\x00") {
			t.Fatalf("line holds a raw control character: %.500q", line)
		}
	}
}

// normal makes what is absent on the wire nil.
func normal(e schema.Event) schema.Event {
	if len(e.Payload) == 0 {
		e.Payload = json.RawMessage("{}")
	}
	if len(e.Path) == 0 {
		e.Path = nil
	}
	if len(e.Extra) == 0 {
		e.Extra = nil
	}
	return e
}

func TestAllFieldsRoundTrip(t *testing.T) {
	e := schema.Event{
		ID: "evt_1", TS: "2026-01-02T03:04:05.678+02:00", Type: "text.delta", RunID: "run_1", ChildID: "run_2",
		Seq: schema.MaxSeq, FirstSeq: 5, TurnID: "turn \"<&>\" \x01 ü 😀", Path: []string{"run_1", "run_2"},
		Cause: "evt_0", Actor: "user", Extra: json.RawMessage(`"x":[1.0,1e2],"y":null`),
		Payload: json.RawMessage(`{"text":"a"}`),
	}
	line := e.AppendLine([]byte("kept"))
	if !bytes.HasPrefix(line, []byte(`kept{"id":"evt_1"`)) {
		t.Fatalf("AppendLine does not append: %s", line)
	}
	got, err := schema.DecodeLine(line[4:])
	if err != nil || !reflect.DeepEqual(e, got) {
		t.Fatalf("%v\nwant %+v\n got %+v", err, e, got)
	}
	var std schema.Event
	if err := json.Unmarshal(line[4:], &std); err != nil || !reflect.DeepEqual(std, e) {
		t.Fatalf("through encoding/json: %v %+v", err, std)
	}
	if e.First() != 5 || (&schema.Event{Seq: 9}).First() != 9 || e.Key("t") != (schema.RunKey{Tenant: "t", Run: "run_1"}) {
		t.Error("First or Key")
	}
	e.FirstSeq = e.Seq
	if bytes.Contains(e.AppendLine(nil), []byte("first_seq")) {
		t.Error("first_seq equal to seq stands on the wire")
	}
}

// TestForeignSpelling reads what other writers may write: any order, white space, nulls.
func TestForeignSpelling(t *testing.T) {
	line := "{ \"payload\" : {\"text\" :\n\"a\\nb\", \"n\": 1.10 } ,\r\n\"seq\": 7, \"child_id\":null,\"turn_id\":null,\"x\": [ 1,\n 2 ]," +
		"\"run_id\":\"run_1\",\"ty\\u0070e\":\"text.delta\",\"future_field\":{}, \"path\":null}"
	e, err := schema.DecodeLine([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"","ts":"","type":"text.delta","run_id":"run_1","child_id":null,"seq":7,"x":[1,2],"future_field":{},"payload":{"text":"a\nb","n":1.10}}`
	if got := string(e.AppendLine(nil)); got != want {
		t.Errorf("\nwant %s\n got %s", want, got)
	}
	if _, err := schema.DecodeLine([]byte(`{"type":"newer.than-me","payload":{}}`)); err != nil {
		t.Errorf("a reader must take types that it does not know: %v", err)
	}
}

// TestScanAgrees: the cheap view of a line and its decoding say the same.
func TestScanAgrees(t *testing.T) {
	for _, e := range everyEvent() {
		line := e.AppendLine(nil)
		r, err := schema.ScanLine(line)
		if err != nil {
			t.Fatalf("%v\n%.500s", err, line)
		}
		if r.Seq != e.Seq || string(r.Type) != e.Type || string(r.Child) != e.ChildID ||
			(r.Child == nil) != (e.ChildID == "") {
			t.Fatalf("scanned %d %s %s\n%.500s", r.Seq, r.Type, r.Child, line)
		}
		if !bytes.Equal(r.Payload(), e.Payload) {
			t.Fatalf("payload %.500s\n%.500s", r.Payload(), line)
		}
		if back, err := r.Event(); err != nil || !bytes.Equal(back.AppendLine(nil), line) {
			t.Fatalf("Event: %v", err)
		}
	}
}

func TestScanRefuses(t *testing.T) {
	good := `{"id":"evt_1","ts":"t","type":"text.delta","run_id":"r","child_id":null,"seq":7,"payload":{"text":"x"}}`
	if _, err := schema.ScanLine([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for i := range len(good) {
		r, err := schema.ScanLine([]byte(good[:i]))
		if err == nil { // only a cut that leaves a closing brace at the end can look whole
			if r.Payload() == nil || good[i-1] != '}' {
				t.Errorf("cut at %d passes: %s", i, good[:i])
			}
		} else if !errors.Is(err, schema.ErrMalformed) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	for name, line := range map[string]string{
		"order":        strings.Replace(good, `"id":"evt_1","ts":"t"`, `"ts":"t","id":"evt_1"`, 1),
		"space":        strings.Replace(good, `"seq":7`, `"seq": 7`, 1),
		"no seq":       strings.Replace(good, `"seq":7,`, ``, 1),
		"negative":     strings.Replace(good, `"seq":7`, `"seq":-7`, 1),
		"fraction":     strings.Replace(good, `"seq":7`, `"seq":7.0`, 1),
		"long seq":     strings.Replace(good, `"seq":7`, `"seq":12345678901234567`, 1),
		"child number": strings.Replace(good, `null`, `1`, 1),
		"escape":       strings.Replace(good, `text.delta`, `text\u002edelta`, 1),
		"escaped id":   strings.Replace(good, `evt_1`, `evt\u005f1`, 1),
		"tail":         good + " ",
		"line feed":    good + "\n",
	} {
		if r, err := schema.ScanLine([]byte(line)); !errors.Is(err, schema.ErrMalformed) {
			t.Errorf("%s passes: %+v %v", name, r, err)
		}
	}
}

// TestScanDoesNotAllocate guards the promise that history costs nothing per event.
func TestScanDoesNotAllocate(t *testing.T) {
	line := []byte(`{"id":"evt_1","ts":"t","type":"text.delta","run_id":"r","child_id":"c","seq":7,"turn_id":"t","payload":{"text":"x"}}`)
	if n := testing.AllocsPerRun(100, func() {
		r, err := schema.ScanLine(line)
		if err != nil || !r.IsDelta() || r.Payload() == nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPayloadOfDamagedLine(t *testing.T) {
	head := `{"id":"e","ts":"t","type":"x","run_id":"r","child_id":null,"seq":7`
	for tail, want := range map[string]string{
		`,"payload":{}}`:                         `{}`,
		`,"turn_id":"a\"}","payload":{"a":"}"}}`: `{"a":"}"}`,
		`,"x":{"payload":{}},"payload":{"a":1}}`: `{"a":1}`,
		`,"x":1}`:                                "",
		`,"x"}`:                                  "",
		`,"x":}`:                                 "",
		`,"x":"}`:                                "",
		`,"x":{"}`:                               "",
		`,}`:                                     "",
		`,"payload"}`:                            "",
		`,"payload":}`:                           "",
		`,"x":1,"p":2}`:                          "",
	} {
		r, err := schema.ScanLine([]byte(head + tail))
		if err != nil {
			t.Errorf("%s: %v", tail, err)
			continue
		}
		if got := string(r.Payload()); got != want {
			t.Errorf("%s: payload %q, want %q", tail, got, want)
		}
	}
}

// TestDecodeLineRefuses holds readers of the log to its form.
func TestDecodeLineRefuses(t *testing.T) {
	for name, line := range map[string]string{
		"empty":           ``,
		"null":            `null`,
		"list":            `[]`,
		"number":          `1`,
		"cut":             `{"type":"text.delta"`,
		"two":             `{"type":"text.delta"}{}`,
		"utf-8":           "{\"type\":\"text.delta\",\"payload\":{\"text\":\"\xff\"}}",
		"utf-8 surrogate": "{\"type\":\"text.delta\",\"payload\":{\"text\":\"\xed\xa0\x80\"}}",
		"raw control":     "{\"type\":\"text.delta\",\"payload\":{\"text\":\"\x01\"}}",
		"raw NUL":         "{\"type\":\"text.delta\"}\x00",
		"twice":           `{"type":"text.delta","type":"text.delta"}`,
		"twice escaped":   `{"type":"text.delta","t\u0079pe":"text.delta"}`,
		"twice unknown":   `{"x":1,"x":1}`,
		"type":            `{"type":7}`,
		"type break":      `{"type":"a\nb"}`,
		"type empty":      `{"type":""}`,
		"id":              `{"id":"a b"}`,
		"id empty":        `{"id":""}`,
		"run":             `{"run_id":"a.b"}`,
		"run root lane":   `{"run_id":"-"}`,
		"child":           `{"child_id":"*"}`,
		"child number":    `{"child_id":0}`,
		"seq zero":        `{"seq":0}`,
		"seq negative":    `{"seq":-1}`,
		"seq text":        `{"seq":"1"}`,
		"seq fraction":    `{"seq":1.0}`,
		"seq exponent":    `{"seq":1e3}`,
		"seq huge":        `{"seq":9007199254740992}`,
		"ts":              `{"ts":"yesterday"}`,
		"ts comma":        `{"ts":"2026-01-02T03:04:05,5Z"}`,
		"ts long":         `{"ts":"2026-01-02T03:04:05.00000000000000000000000000000000Z"}`,
		"payload list":    `{"payload":[]}`,
		"payload null":    `{"payload":null}`,
		"payload text":    `{"payload":"{}"}`,
		"path":            `{"path":"run_1"}`,
		"path null":       `{"path":[null]}`,
		"path id":         `{"path":["a.b"]}`,
		"path deep":       `{"path":["a"` + strings.Repeat(`,"a"`, 32) + `]}`,
		"turn long":       `{"turn_id":"` + strings.Repeat("x", 257) + `"}`,
		"deep":            `{"payload":{"a":` + strings.Repeat("[", 127) + strings.Repeat("]", 127) + `}}`,
		"bom":             "\xef\xbb\xbf{}",
	} {
		e, err := schema.DecodeLine([]byte(line))
		if !errors.Is(err, schema.ErrMalformed) && !errors.Is(err, schema.ErrBadID) &&
			!errors.Is(err, schema.ErrUnknownType) {
			t.Errorf("%s passes: %+v %v", name, e, err)
		}
	}
}
