package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/edge/dialect"
	"agentstream/internal/natskit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// threadExpectation is what expected.json says of a recording, whatever the provider.
type threadExpectation struct {
	Text, Reasoning, RawReasoning providertest.Digest
	ToolCalls                     []struct {
		ID    string
		Input any
	}
	Usage map[string]any
}

// assembled is what the SDK has put together.
type assembled struct {
	Open     int
	Messages []struct {
		Text, Reasoning string
		Blocks          []struct {
			Type, ID, Text string
			Args           any
			Value          struct{ Content string }
		}
		Usage map[string]any
	}
	Tools []string
}

// TestLangGraphAssemblers: the assemblers of @langchain/langgraph-sdk, unmodified, have of every provider's recording
// the texts, calls and usage that are expected, and leave no message open.
func TestLangGraphAssemblers(t *testing.T) {
	beside(t)
	node, dir := needLangGraph(t), t.TempDir()
	assembleAll(t, node, nil, func(s schematest.Scenario) string {
		file := filepath.Join(dir, strings.ReplaceAll(s.Name, "/", "-"))
		if err := os.WriteFile(file, threadEvents(t, s), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	})
}

// TestLangGraphRecordings: so they have when the recordings are threads, and the SDK reads them from a server.
func TestLangGraphRecordings(t *testing.T) {
	beside(t)
	node, w := needLangGraph(t), edgesFor(t, "http://127.0.0.1:1")
	nc, err := natskit.Dial(w.nats, "recordings")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	log, err := pubjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	assembleAll(t, node, envOf(w, "sse"), func(s schematest.Scenario) string {
		n++
		key := schema.RunKey{Tenant: "default", Run: fmt.Sprintf("recording-%d", n)}
		events := slices.Clone(s.Events)
		if last := events[len(events)-1]; last.Type != schema.TypeRunLifecycle {
			events = append(events, schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)})
		}
		for i := range events {
			events[i].Path = nil
			if err := events[i].Prepare(key.Run); err != nil {
				t.Fatalf("%s: %v", s.Name, err)
			}
		}
		if _, err := app.Append(t.Context(), key, events, producers.AppendOptions{}); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		return key.Run
	})
}

// assembleAll has the SDK put together all recordings, and a run with tools beside each other. write makes one what the
// script takes as an argument.
func assembleAll(t *testing.T, node string, env []string, write func(schematest.Scenario) string) {
	t.Helper()
	all, args := map[string]threadExpectation{}, []string{"langgraph-assemble.mjs"}
	for folder, decoder := range map[string]func(provider.Config) *provider.Decoder{
		"anthropic": anthropic.NewDecoder, "openai-chat": openai.NewChatDecoder, "openai-responses": openai.NewResponsesDecoder, "gemini": gemini.NewDecoder,
	} {
		want, read := providertest.Recordings[threadExpectation](t, 4, folder)
		for name, w := range want {
			arg := write(schematest.Scenario{Name: name, Events: providertest.Decode(t, decoder(provider.Config{}), read(name))})
			all[arg], args = w, append(args, arg)
		}
	}
	tools := write(schematest.ByName("parallel-tools"))
	cmd := exec.Command(node, append(args, tools)...)
	cmd.Dir, cmd.Env = jsDir, append(os.Environ(), env...)
	out, err := cmd.Output()
	var got map[string]assembled
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if a := got[tools]; !slices.Equal(a.Tools, []string{"call_a", "call_b", "call_c"}) || a.Open != 0 {
		t.Errorf("%+v", a)
	}
	for _, arg := range slices.Sorted(maps.Keys(all)) {
		sameAssembled(t, filepath.Base(arg), got[arg], all[arg])
	}
	t.Logf("%d recordings", len(all))
}

// threadEvents returns the events of a thread, one to a line.
func threadEvents(t *testing.T, s schematest.Scenario) []byte {
	t.Helper()
	d, frames := langgraph.Dialect{}, dialect.Frames{}
	req, err := d.Open(dialect.Input{Body: []byte(`{"channels":["lifecycle","messages","tools"]}`),
		Path: map[string]string{"run": schematest.Root}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p, events := d.Projector(req), schematest.NumberEvents(schematest.Root, s)
	for i := range events {
		r, err := schema.ScanLine(events[i].AppendLine(nil))
		if err == nil {
			err = p.Project(&frames, r)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range frames.List {
			if req.Select.Match(&frames.List[i]) {
				b.Write(append(frames.List[i].Data, '\n'))
			}
		}
		frames.Reset()
	}
	return b.Bytes()
}

func sameAssembled(t *testing.T, name string, got assembled, want threadExpectation) {
	var said, spoken, thought strings.Builder
	calls, usage := map[string]any{}, map[string]any{}
	for _, m := range got.Messages {
		blocks := ""
		for _, b := range m.Blocks {
			blocks += b.Text
			said.WriteString(b.Text + b.Value.Content)
			if strings.HasSuffix(b.Type, "tool_call") {
				calls[b.ID] = b.Args
			}
		}
		if blocks != m.Text {
			t.Errorf("%s: the deltas are %q, the blocks %q", name, m.Text, blocks)
		}
		spoken.WriteString(m.Text)
		thought.WriteString(m.Reasoning)
		if m.Usage != nil {
			usage = m.Usage
		}
	}
	if providertest.DigestOf(said.String()) != want.Text && providertest.DigestOf(spoken.String()) != want.Text ||
		got.Open > 0 {
		t.Errorf("%s: text %q, %d messages are open", name, said.String(), got.Open)
	}
	if d := providertest.DigestOf(thought.String()); d != want.Reasoning && d != want.RawReasoning {
		t.Errorf("%s: reasoning %q", name, thought.String())
	}
	for _, c := range want.ToolCalls {
		if c.ID != "" && c.Input != nil && !reflect.DeepEqual(calls[c.ID], c.Input) {
			t.Errorf("%s: call %s %v, want %v", name, c.ID, calls[c.ID], c.Input)
		}
	}
	if n, ok := want.Usage["total_tokens"].(float64); ok && usage["total_tokens"] != n {
		t.Errorf("%s: usage %v, want %v", name, usage, want.Usage)
	}
}
