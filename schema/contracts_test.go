package schema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

const (
	eventsDir   = "contracts/events"
	draft       = "https://json-schema.org/draft/2020-12/schema"
	envelopeURN = "urn:agentstream:envelope"
	snapshotURN = "urn:agentstream:snapshot"
	anyURN      = "urn:agentstream:event"
)

// Types of views; no line of the log has them (edge/shape).
const (
	snapshotType = "run.snapshot"
	bundleType   = "delta.bundle"
	gapType      = "stream.gap"
)

// textDeltas are the types that a bundle may hold.
var textDeltas = []string{schema.TypeReasoningDelta, schema.TypeTextDelta, schema.TypeToolInputDelta,
	schema.TypeToolOutputDelta}

// members is a JSON object whose members keep their order.
type members []member

type member struct {
	name  string
	value any
}

func (m members) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range m {
		if i > 0 {
			b.WriteByte(',')
		}
		v, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", f.name, v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// eventSchema is the contract of one type: the envelope, and what the payload is held to.
func eventSchema(name, about string, payload any, more ...member) members {
	properties := members{{"type", members{{"const", name}}}}
	properties = append(append(properties, more...), member{"payload", payload})
	return members{
		{"$schema", draft}, {"$id", anyURN + ":" + name}, {"title", name}, {"description", about},
		{"allOf", []any{members{{"$ref", envelopeURN}}}}, {"properties", properties},
	}
}

func aboutType(info schema.TypeInfo) string {
	about := "Control event: it goes at once and is never merged or dropped."
	if info.Delta {
		about = "Delta: neighbours may be merged into one, and a client that lags may be spared it, unless detail=full."
	}
	if info.Native {
		about += " One of the eight types of the published protocol."
	}
	return "Family " + string(info.Family) + ". " + about
}

// bundleSchema is the payload of delta.bundle: deltas of several lanes, in their order.
func bundleSchema() members {
	var byType []any
	for _, name := range textDeltas {
		byType = append(byType, members{
			{"if", members{{"properties", members{{"type", members{{"const", name}}}}}}},
			{"then", members{{"properties", members{{"payload",
				members{{"$ref", anyURN + ":" + name + "#/properties/payload"}}}}}}},
		})
	}
	part := members{
		{"type", "object"}, {"required", []string{"type", "child_id", "payload"}},
		{"properties", members{
			{"type", members{{"enum", textDeltas}}},
			{"child_id", members{{"$ref", envelopeURN + "#/properties/child_id"}}},
			{"turn_id", members{{"$ref", envelopeURN + "#/properties/turn_id"}}},
			{"path", members{{"$ref", envelopeURN + "#/properties/path"}}},
			{"cause", members{{"$ref", envelopeURN + "#/properties/cause"}}},
			{"actor", members{{"$ref", envelopeURN + "#/properties/actor"}}},
			{"payload", members{{"type", "object"}}},
			{"id", false}, {"ts", false}, {"run_id", false}, {"seq", false}, {"first_seq", false},
		}},
		{"allOf", byType},
	}
	return members{
		{"type", "object"}, {"required", []string{"deltas"}},
		{"properties", members{{"deltas", members{{"type", "array"}, {"minItems", 2}, {"items", part}}}}},
	}
}

// gapSchema is the payload of stream.gap.
func gapSchema() members {
	place := members{{"type", "integer"}, {"minimum", 1}}
	return members{
		{"type", "object"}, {"required", []string{"first_seq", "last_seq", "dropped_count", "dropped_code"}},
		{"properties", members{
			{"first_seq", place}, {"last_seq", place}, {"dropped_count", place},
			{"dropped_code", members{{"const", schema.CodeDropped}}},
		}},
	}
}

// generated returns the files of contracts/events that are made from the catalogue.
func generated() map[string]members {
	files := map[string]members{}
	var names []string
	for _, info := range schema.Types() {
		files[info.Name] = eventSchema(info.Name, aboutType(info), json.RawMessage(info.Schema))
		names = append(names, info.Name)
	}
	files[snapshotType] = eventSchema(snapshotType,
		"View: the first event of a stream that was asked for with snapshot=true. It stands for all events up to seq; id and ts are those of that event. It is never stored.",
		members{{"$ref", snapshotURN}}, member{"child_id", members{{"type", "null"}}})
	files[bundleType] = eventSchema(bundleType,
		"View: deltas of lanes that speak at the same time, in their order, for clients that ask for bundle=true. id, ts, child_id and seq are those of the last delta, first_seq is of the first. It is never stored.",
		bundleSchema())
	files[gapType] = eventSchema(gapType, "View: what this client was spared because it was seconds behind. Of the events from first_seq to last_seq dropped_count did not come; some others between them may have. seq is the place before first_seq: a stream that is opened behind it brings all of them. It has no first_seq of its own, covers nothing, and is never stored.",
		gapSchema(), member{"child_id", members{{"type", "null"}}})
	var byType []any
	for _, name := range append(names, snapshotType, bundleType, gapType) {
		byType = append(byType, members{
			{"if", members{{"properties", members{{"type", members{{"const", name}}}}}}},
			{"then", members{{"$ref", anyURN + ":" + name}}},
		})
	}
	files["any"] = members{
		{"$schema", draft}, {"$id", anyURN}, {"title", "Any event of a stream"},
		{"description", "The envelope, and by its type the payload. A type that is not listed passes by its envelope alone: custom.* is the producers' own, and the log may be newer than its reader."},
		{"allOf", append([]any{members{{"$ref", envelopeURN}}}, byType...)},
	}
	return files
}

// TestEventContracts holds the files to the catalogue; -update writes them.
func TestEventContracts(t *testing.T) {
	want := map[string]bool{"envelope.schema.json": true}
	for name, doc := range generated() {
		file := name + ".schema.json"
		want[file] = true
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(doc); err != nil {
			t.Fatal(err)
		}
		golden(t, "../"+eventsDir+"/"+file, b.Bytes())
	}
	files, err := filepath.Glob(eventsDir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !want[filepath.Base(f)] {
			t.Errorf("%s is not in the catalogue", f)
		}
		delete(want, filepath.Base(f))
	}
	if len(want) > 0 {
		t.Errorf("without a file: %v", want)
	}
}

// eventContracts compiles what is in the files, as a client would.
func eventContracts(t testing.TB) *jsonschema.Compiler {
	t.Helper()
	files, err := filepath.Glob(eventsDir + "/*.schema.json")
	if err != nil || len(files) < len(schema.Types()) {
		t.Fatalf("%d files, %v", len(files), err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for _, f := range append(files, "contracts/snapshot.schema.json") {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if err := c.AddResource(doc.(map[string]any)["$id"].(string), doc); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
	}
	return c
}

func anyEvent(t testing.TB) *jsonschema.Schema {
	t.Helper()
	sch, err := eventContracts(t).Compile(anyURN)
	if err != nil {
		t.Fatal(err)
	}
	return sch
}

func holds(sch *jsonschema.Schema, line string) error {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
	if err != nil {
		return err
	}
	return sch.Validate(doc)
}

// views are events that only a stream shows, as edge/shape writes them.
func views() map[string]string {
	head := `{"id":"evt_9","ts":"2026-01-02T03:04:05.000Z","type":"%s","run_id":"run_1","child_id":%s,"seq":9,"first_seq":%d,"payload":%s}`
	snapshot := string(foldOf(schematest.ByName("children")).AppendSnapshot(nil))
	deltas := `{"deltas":[{"type":"text.delta","child_id":"a","turn_id":"t","path":["run_1","a"],"payload":{"text":"x","index":0}},` +
		`{"type":"tool.output.delta","child_id":null,"x_own":1,"payload":{"call_id":"c","text":"y"}}]}`
	return map[string]string{
		snapshotType: fmt.Sprintf(head, snapshotType, "null", 1, snapshot),
		bundleType:   fmt.Sprintf(head, bundleType, `"a"`, 3, deltas),
		gapType: fmt.Sprintf(head, gapType, "null", 9,
			`{"first_seq":10,"last_seq":19,"dropped_count":7,"dropped_code":"KAI-STREAM-BUF-0001"}`),
		"merged": fmt.Sprintf(head, schema.TypeTextDelta, "null", 7, `{"text":"xyz"}`),
		"dropped": fmt.Sprintf(head, schema.TypeRunLifecycle, "null", 9,
			`{"state":"done","reason":null,"dropped_count":7,"dropped_code":"KAI-STREAM-BUF-0001"}`),
		"custom": fmt.Sprintf(head, "custom.some-thing", "null", 9, `{"any":[{}]}`),
		"newer":  fmt.Sprintf(head, "text.annotated", "null", 9, `{}`),
		"tool.end": fmt.Sprintf(head, schema.TypeToolEnd, "null", 9,
			`{"call_id":"c","ok":true,"output":[],"duration_ms":0.5}`),
	}
}

// TestContractRefuses breaks good events in one place each.
func TestContractRefuses(t *testing.T) {
	sch := anyEvent(t)
	good := views()
	for name, line := range good {
		if err := holds(sch, line); err != nil {
			t.Errorf("%s: %v\n%.300s", name, err, line)
		}
	}
	for _, tt := range []struct{ of, was, now string }{
		{"merged", `"id":"evt_9",`, ``}, {"merged", `"evt_9"`, `""`}, {"merged", `"evt_9"`, `"evt 9"`},
		{"merged", `"evt_9"`, `"evt_9\n"`}, {"merged", `"evt_9"`, `9`},
		{"merged", `"evt_9"`, `"` + strings.Repeat("x", 129) + `"`},
		{"merged", `"ts":"2026-01-02T03:04:05.000Z",`, ``}, {"merged", `2026-01-02T03:04:05.000Z`, `yesterday`},
		{"merged", `2026-01-02T03:04:05.000Z`, `2026-01-02 03:04:05Z`},
		{"merged", `2026-01-02T03:04:05.000Z`, `2026-13-02T03:04:05Z`},
		{"merged", `2026-01-02T03:04:05.000Z`, `2026-01-02T03:04:05.000`},
		{"merged", `"type":"text.delta",`, ``}, {"merged", `"text.delta"`, `""`},
		{"merged", `"text.delta"`, `"text\ndelta"`}, {"merged", `"text.delta"`, `null`},
		{"merged", `"run_1"`, `"-"`}, {"merged", `"run_1"`, `"a.b"`}, {"merged", `"run_1"`, `">"`},
		{"merged", `"run_id":"run_1",`, ``}, {"merged", `"run_1"`, `null`},
		{"merged", `"child_id":null,`, ``}, {"merged", `"child_id":null`, `"child_id":""`},
		{"merged", `"child_id":null`, `"child_id":"-"`}, {"merged", `"child_id":null`, `"child_id":7`},
		{"merged", `"seq":9,`, ``}, {"merged", `"seq":9`, `"seq":0`}, {"merged", `"seq":9`, `"seq":-1`},
		{"merged", `"seq":9`, `"seq":9.5`}, {"merged", `"seq":9`, `"seq":"9"`},
		{"merged", `"seq":9`, `"seq":9007199254740992`}, {"merged", `"first_seq":7`, `"first_seq":0`},
		{"merged", `"first_seq":7`, `"first_seq":null`},
		{"merged", `"first_seq":7`, `"turn_id":7`}, {"merged", `"first_seq":7`, `"path":["a b"]`},
		{"merged", `"first_seq":7`, `"path":"run_1"`}, {"merged", `"first_seq":7`, `"actor":{}`},
		{"merged", `"first_seq":7`, `"cause":"` + strings.Repeat("x", 257) + `"`},
		{"merged", `,"payload":{"text":"xyz"}`, ``}, {"merged", `{"text":"xyz"}`, `[]`},
		{"merged", `{"text":"xyz"}`, `null`}, {"merged", `{"text":"xyz"}`, `{}`}, {"merged", `"xyz"`, `7`},
		{"custom", `{"any":[{}]}`, `"text"`}, {"newer", `"seq":9`, `"seq":0`},
		{"dropped", `"done"`, `"finished"`}, {"dropped", `"state":"done",`, ``}, {"dropped", `"reason":null`, `"reason":1`},
		{"tool.end", `"ok":true`, `"ok":"yes"`}, {"tool.end", `"call_id":"c"`, `"call_id":""`}, {"tool.end", `0.5`, `-1`},
		{bundleType, `{"call_id":"c","text":"y"}`, `{"text":"y"}`},
		{bundleType, `{"text":"x","index":0}`, `{"index":0}`}, {bundleType, `"type":"text.delta"`, `"type":"tool.end"`},
		{bundleType, `"child_id":null,"x_own":1,`, ``}, {bundleType, `"turn_id":"t"`, `"seq":3`},
		{bundleType, `"deltas"`, `"parts"`}, {bundleType, `"path":["run_1","a"]`, `"path":["-"]`},
		{bundleType, good[bundleType][strings.Index(good[bundleType],
			`,{"type":"tool`):strings.LastIndex(good[bundleType], `]`)], ``},
		{gapType, `"child_id":null`, `"child_id":"a"`}, {gapType, `"last_seq":19`, `"last_seq":"19"`},
		{gapType, `"dropped_count":7,`, ``}, {gapType, `BUF-0001`, `BUF-0002`},
		{snapshotType, `"child_id":null`, `"child_id":"a"`}, {snapshotType, `"usage":`, `"used":`},
		{snapshotType, `"state":"done"`, `"state":"finished"`},
	} {
		broken := strings.Replace(good[tt.of], tt.was, tt.now, 1)
		if broken == good[tt.of] {
			t.Fatalf("%s has no %s", tt.of, tt.was)
		}
		if holds(sch, broken) == nil {
			t.Errorf("%s with %.60s for %.60s passes", tt.of, tt.now, tt.was)
		}
	}
}

// TestContractNeedsWhatPayloadsNeed takes each needed field out of an example of each type.
func TestContractNeedsWhatPayloadsNeed(t *testing.T) {
	sch := anyEvent(t)
	n := 0
	for _, info := range schema.Types() {
		var payload struct{ Required []string }
		if err := json.Unmarshal([]byte(info.Schema), &payload); err != nil {
			t.Fatal(err)
		}
		for _, name := range payload.Required {
			var fields map[string]json.RawMessage
			if err := json.Unmarshal([]byte(examples[info.Name][0]), &fields); err != nil {
				t.Fatal(err)
			}
			delete(fields, name)
			b, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			e := schematest.NumberEvents(testRun, schematest.Scenario{Events: []schema.Event{{Type: info.Name, Payload: b}}})[0]
			if n++; holds(sch, string(e.AppendLine(nil))) == nil {
				t.Errorf("%s passes without %s", info.Name, name)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d fields", n)
	}
}

// TestEnvelopeContractNamesEveryField: what schema.Event has is what the envelope's contract tells.
func TestEnvelopeContractNamesEveryField(t *testing.T) {
	text, err := os.ReadFile(eventsDir + "/envelope.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Required   []string
		Properties map[string]json.RawMessage
		Defs       map[string]struct{ Maximum int64 } `json:"$defs"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	whole := schema.Event{ID: "a", TS: "b", Type: "c", RunID: "d", ChildID: "e", Seq: 2, FirstSeq: 1, TurnID: "f",
		Path: []string{"g"}, Cause: "h", Actor: "i", Extra: json.RawMessage(`"trace":"j"`)}
	bare := schema.Event{}
	for _, tt := range []struct {
		e    schema.Event
		want func(name string) bool
	}{
		{whole, func(name string) bool { _, ok := doc.Properties[name]; return ok }},
		{bare, func(name string) bool { return slices.Contains(doc.Required, name) }},
	} {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(tt.e.AppendLine(nil), &fields); err != nil {
			t.Fatal(err)
		}
		for name := range fields {
			if !tt.want(name) {
				t.Errorf("%s is not told", name)
			}
		}
		if n := len(fields); n != len(doc.Properties) && n != len(doc.Required) {
			t.Errorf("%d fields are written, the contract has %d, %d of them always", n, len(doc.Properties), len(doc.Required))
		}
	}
	if got := doc.Defs["seq"].Maximum; got != int64(schema.MaxSeq) {
		t.Errorf("seq ends at %d", got)
	}
}
