package schema_test

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

const testRun = "run_01JGX6TESTRUN"

// golden compares content with a file of testdata.
func golden(t *testing.T, name string, content []byte) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./schema -update writes it)", err)
	}
	if !bytes.Equal(want, content) {
		t.Errorf("%s differs%s", path, firstDifference(want, content))
	}
}

func firstDifference(want, got []byte) string {
	w, g := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf(" at line %d\nwant %.600s\n got %.600s", i+1, a, b)
		}
	}
	return ""
}

// TestGoldenTypes pins the encoded form of each type's examples, and that each type has some.
func TestGoldenTypes(t *testing.T) {
	types := append(schema.Types(), schema.TypeInfo{Name: "custom.example"})
	for _, info := range types {
		t.Run(info.Name, func(t *testing.T) {
			payloads := examples[info.Name]
			if len(payloads) == 0 {
				t.Fatal("the type has no example")
			}
			var s schematest.Scenario
			for _, p := range payloads {
				s.Events = append(s.Events, schema.Event{Type: info.Name, Payload: []byte(p)})
			}
			var file []byte
			for _, e := range schematest.NumberEvents(testRun, s) {
				file = append(e.AppendLine(file), '\n')
			}
			golden(t, "types/"+info.Name+".jsonl", file)
			if _, err := schema.DecodeBatch(testRun, file); err != nil {
				t.Error(err)
			}
		})
	}
	files, err := filepath.Glob("testdata/types/*.jsonl")
	if err != nil || len(files) != len(types) {
		t.Errorf("%d files for %d types, %v", len(files), len(types), err)
	}
	if len(examples) != len(types) {
		t.Errorf("%d examples for %d types", len(examples), len(types))
	}
}

// TestGoldenScenarios pins the encoded lines of the scenarios, which other packages' goldens stand
// on. Long lines and long scenarios are pinned by their hash.
func TestGoldenScenarios(t *testing.T) {
	for _, s := range schematest.All() {
		t.Run(s.Name, func(t *testing.T) {
			golden(t, "scenarios/"+s.Name+".jsonl", scenarioFile(s))
		})
	}
	golden(t, "scenarios/generated.txt", scenarioFile(schematest.Generate(3000, 7)))
}

func scenarioFile(s schematest.Scenario) []byte {
	const maxLine, maxLines = 2000, 120
	lines := schematest.Lines(schematest.Packs(schema.RunKey{Tenant: "acme", Run: testRun}, s, 0))
	var file bytes.Buffer
	for i, line := range lines {
		switch {
		case i >= maxLines:
		case len(line) > maxLine:
			fmt.Fprintf(&file, "# %d bytes, sha256 %x\n", len(line), sha256.Sum256([]byte(line)))
		default:
			file.WriteString(line + "\n")
		}
	}
	if len(lines) > maxLines {
		fmt.Fprintf(&file, "# %d lines, sha256 %x\n", len(lines), sha256.Sum256([]byte(strings.Join(lines, "\n"))))
	}
	return file.Bytes()
}

// examples are payloads of each type. The first is the smallest that the type allows.
var examples = map[string][]string{
	"reasoning.delta": {`{"text":""}`, `{"text":"hmm","index":0}`},
	"text.delta":      {`{"text":""}`, `{"text":"Hello, wörld","index":2}`, `{"text":"more","vendor":{"logprob":-0.10}}`},
	"tool.start": {`{"call_id":"c1","tool":"grep"}`,
		`{"call_id":"c1","tool":"grep","input":{"q":"x","n":12345678901234567890},"skill_id":"grep@1.2.0","index":1}`},
	"tool.end": {`{"call_id":"c1","ok":true}`,
		`{"call_id":"c1","ok":true,"output":"3 hits","duration_ms":12}`,
		`{"call_id":"c1","ok":false,"error":"KAI-TOOL-TIME-0001","duration_ms":0.5}`,
		`{"call_id":"c1","ok":true,"blob_ref":"blob_1"}`},
	"tool.run": {`{"call_id":"c1"}`},
	"step.boundary": {`{"step_index":0,"step_kind":"plan"}`,
		`{"step_index":3,"step_kind":"fan-in","checkpoint_id":"cp_3"}`,
		`{"step_index":4,"step_kind":"done","checkpoint_id":null}`},
	"child.spawn": {`{"child_id":"run_c1"}`, `{"child_id":"run_c1","prompt":"count","tools_allowed":["grep","read"]}`},
	"plan.proposal": {`{"plan":{"id":"p1","steps":[]}}`,
		`{"plan":{"id":"p1","run_id":"run_1","steps":[{"id":"s1","title":"look","intent":"research","est_tools":["grep"],"est_cost_usd":0.010}],"est_total_cost_usd":0.010}}`},
	"run.lifecycle": {`{"state":"planning"}`, `{"state":"awaiting_approval","reason":"plan p1"}`,
		`{"state":"running","reason":null}`,
		`{"state":"paused","reason":null}`, `{"state":"redirecting","reason":null}`, `{"state":"done","reason":null}`,
		`{"state":"aborted","reason":"user"}`, `{"state":"error","reason":"provider"}`},
	"message.start": {`{"message_id":"m1","role":"assistant"}`,
		`{"message_id":"m1","role":"assistant","model":"scripted-1","provider":"scripted","usage":{"input_tokens":1}}`},
	"message.end": {`{"message_id":"m1"}`,
		`{"message_id":"m1","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"output_tokens":2}}`,
		`{"message_id":"m1","stop_reason":"error","error":{"type":"overloaded_error"}}`},
	"block.start": {`{"index":0,"kind":"text"}`,
		`{"index":1,"kind":"tool_use","message_id":"m1","call_id":"c1","tool":"grep"}`,
		`{"index":2,"kind":"redacted_thinking","message_id":"m1","block":{"type":"redacted_thinking","data":"xyz"}}`},
	"block.end": {`{"index":0}`, `{"index":1,"message_id":"m1","call_id":"c1","complete":true,"input":{"q":"x"}}`,
		`{"index":2,"complete":false,"signature":"sig","citations":[{"url":"https://example.com"}]}`},
	"tool.input.delta":  {`{"call_id":"c1","text":""}`, `{"call_id":"c1","text":"{\"q\":","index":1}`},
	"tool.output.delta": {`{"call_id":"c1","text":""}`, `{"call_id":"c1","text":"line 1\n"}`},
	"data.delta": {`{"media_type":"audio/pcm","data":""}`,
		`{"media_type":"image/png","data":"iVBORw0KGgo=","index":0,"name":"chart.png"}`},
	"model.start": {`{"call_id":"mc1"}`, `{"call_id":"mc1","model":"scripted-1","provider":"scripted"}`},
	"model.end": {`{"call_id":"mc1"}`,
		`{"call_id":"mc1","ok":false,"usage":{"input_tokens":4},"duration_ms":1200,"error":{"type":"timeout"}}`},
	"turn.start": {`{"turn_id":"t1"}`},
	"turn.end":   {`{"turn_id":"t1"}`, `{"turn_id":"t1","stop_reason":"end_turn"}`},
	"input.requested": {`{"request_id":"r1"}`,
		`{"request_id":"r1","prompt":"Which?","options":["a","b"],"schema":{"type":"string"}}`},
	"input.answered":     {`{"request_id":"r1"}`, `{"request_id":"r1","answer":{"choice":"a"}}`},
	"state.values":       {`{"values":null}`, `{"values":{"count":1}}`},
	"state.update":       {`{"values":{}}`, `{"node":"research","values":[1,2]}`},
	"checkpoint.created": {`{"checkpoint_id":"cp_1"}`},
	"task.start":         {`{"task_id":"k1"}`, `{"task_id":"k1","name":"index"}`},
	"task.end":           {`{"task_id":"k1"}`, `{"task_id":"k1","name":"index","ok":true}`},
	"progress":           {`{}`, `{"message":"reading","done":3,"total":10}`},
	"commands.taken":     {`{"through":7}`},
	"loss":               {`{"reason":"buffer full"}`, `{"reason":"buffer full","events":3,"bytes":4096}`},
	"session.created":    {`{}`, `{"agent":{"id":"agent_1","type":"agent","version":1},"environment_id":"env_1","title":"Queues","metadata":{"team":"log"},"resources":[],"vault_ids":["vlt_1"],"memory_store_ids":[],"incremental_streaming_enabled":true}`, `{"agent":"agent_1","title":null}`},
	"session.updated": {`{"title":"Queues and logs","metadata":{"team":null,"stage":"2"}}`,
		`{"incremental_streaming_enabled":false}`},
	"session.archived":     {`{}`},
	"session.deleted":      {`{}`},
	"command.message":      {`{"content":"hello"}`, `{"content":[{"type":"text","text":"hello"}],"message_id":"m_u1"}`},
	"command.cancel":       {`{}`, `{"reason":"enough"}`, `{"reason":null}`},
	"command.pause":        {`{}`},
	"command.resume":       {`{}`},
	"command.redirect":     {`{}`, `{"instruction":"look at latency instead"}`},
	"command.approve_plan": {`{}`, `{"plan_id":"p1"}`},
	"command.reject_plan":  {`{}`, `{"plan_id":"p1","reason":"too dear"}`},
	"command.answer":       {`{"request_id":"r1"}`, `{"request_id":"r1","answer":"a"}`},
	"custom.example":       {`{}`, `{"anything":[1e400,-0.0,"\ud800\u0000"]}`},
}
