package langgraph

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"testing"

	"agentstream/adapters/langgraph"
	"agentstream/edge/dialect"
	"agentstream/protocols/langgraph/langgraphtest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// graphRecords returns what adapters/langgraph makes of lines, as it is stored.
func graphRecords(t testing.TB, lines []byte) (all []schema.Record) {
	t.Helper()
	n := schema.Seq(0)
	for e, err := range langgraph.Decode(bytes.NewReader(lines),
		langgraph.Config{RunID: schematest.Root, Lifecycle: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		e.Seq, e.ID, e.RunID = n, schematest.EventID(n), schematest.Root
		r, err := schema.ScanLine(e.AppendLine(nil))
		if err != nil {
			t.Fatalf("%s: %v", e.Payload, err)
		}
		all = append(all, r)
	}
	return all
}

func sent(t testing.TB, frames []dialect.Frame) []langgraphtest.Sent {
	t.Helper()
	var b bytes.Buffer
	for _, f := range frames {
		b.Write(append(f.Data, '\n'))
	}
	all, err := langgraphtest.ReadSent(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestGraph: what a graph of @langchain/langgraph has sent, with subgraphs, parallel nodes, tools, an interrupt and its
// answer, comes out as it went in. internal/e2e does the same with graphs that run.
func TestGraph(t *testing.T) {
	in, err := os.ReadFile("testdata/graph-in.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want, err := langgraphtest.ReadSent(in)
	if err != nil {
		t.Fatal(err)
	}
	list := graphRecords(t, in)
	frames := project(t, projector(t, everything), list)
	for _, problem := range langgraphtest.Differences(want, sent(t, frames)) {
		t.Error(problem)
	}
	whole, seen := projector(t, everything), 0
	for i := range list { // a copy made at any record goes on in the same way
		rest := project(t, whole.For(requested(t, everything)).(*Projector), list[i:])
		if len(rest) != len(frames)-seen || len(rest) > 0 && !bytes.Equal(rest[0].Data, frames[seen].Data) {
			t.Fatalf("behind record %d there are %d frames, want %d", i, len(rest), len(frames)-seen)
		}
		seen += len(project(t, whole, list[i:i+1]))
	}
	for _, f := range frames {
		if err := langgraphtest.Valid(f.Data); err != nil {
			t.Errorf("%s: %v", f.Data, err)
		}
	}
}

// TestGraphUnknown: what the catalogue has no place for comes as it went in, by a method that clients know; else by a
// name.
func TestGraphUnknown(t *testing.T) {
	in := ""
	for _, e := range []string{
		`"messages","params":{"namespace":["n:1"],"node":"n","data":{"event":"content-block-delta","index":0,"delta":{"type":"text-delta","text":"late"},"run_id":"r"}}`,
		`"tools","params":{"namespace":[],"data":{"event":"tool-finished","tool_call_id":"nobody","output":1}}`,
		`"tasks","params":{"namespace":[],"data":{"id":"t","name":"n","result":{}}}`,
		`"lifecycle","params":{"namespace":["n:1"],"data":{"event":"resting"}}`,
		`"custom","params":{"namespace":[],"data":{"payload":1}}`,
		`"custom","params":{"namespace":[],"data":{"name":"with space","payload":1}}`,
		`"a2a","params":{"namespace":[],"data":{"x":1}}`,
		`"messages","params":{"namespace":[],"data":[1]}`,
	} {
		in += `{"method":` + e + "}\n"
	}
	frames := project(t, projector(t, everything), graphRecords(t, []byte(in)))
	got := sent(t, frames)
	want, err := langgraphtest.ReadSent([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{6, 7} {
		want[i].Params.Data = map[string]any{"name": "langgraph." + want[i].Method, "payload": want[i].Params.Data}
		want[i].Method = "custom"
	}
	for i := range got {
		got[i].Params.Timestamp = 0
	}
	if got[0].Method != "lifecycle" { // of the run, of which the lines say nothing
		t.Errorf("%+v", got[0])
	}
	for _, problem := range langgraphtest.Differences(want, got[1:]) {
		t.Error(problem)
	}
	named := projector(t, `{"channels":["custom:with space"]}`)
	if n := len(project(t, named, graphRecords(t, []byte(in)))); n != 1 {
		t.Errorf("%d events of the name", n)
	}
}

// TestGraphLegacy: the older API's pieces of messages add up to what the graph's model has said.
func TestGraphLegacy(t *testing.T) {
	in, err := os.ReadFile("testdata/graph-in.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	said, args := map[string]string{}, ""
	for _, f := range project(t, legacyProjector(t, Legacy{Modes: []string{"messages-tuple"}, Subgraphs: true}),
		graphRecords(t, in)) {
		var pieces []struct {
			ID      string
			Content any
			Chunks  []struct{ Args string } `json:"tool_call_chunks"`
		}
		if !bytes.HasPrefix(f.Event, []byte("messages")) {
			continue
		}
		if err := json.Unmarshal(f.Data, &pieces); err != nil {
			t.Fatalf("%s: %v", f.Data, err)
		}
		switch c := pieces[0].Content.(type) {
		case string:
			said[pieces[0].ID] += c
		case []any:
			b, _ := c[0].(map[string]any)
			for _, name := range []string{"reasoning", "text"} {
				v, _ := b[name].(string)
				said[pieces[0].ID] += v
			}
		}
		for _, c := range pieces[0].Chunks {
			args += c.Args
		}
	}
	texts := map[string]int{}
	for _, v := range said {
		texts[v]++
	}
	if want := (map[string]int{"Hm. Weather.Let me see 😀.": 1, "aaa": 2, "bbb": 2, "It rains.": 1,
		`You say "yes".`: 1}); !maps.Equal(texts, want) {
		t.Errorf("%v, want %v", texts, want)
	}
	if want := `{"city":"Bern","days":[1,2,3,4]}`; args != want {
		t.Errorf("arguments %s, want %s", args, want)
	}
}
