package schema_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// compile returns a validator for each type of the catalogue.
func compile(t testing.TB) map[string]*jsonschema.Schema {
	t.Helper()
	compiled := make(map[string]*jsonschema.Schema)
	for _, info := range append(schema.Types(), schema.TypeInfo{Name: "custom.*", Schema: lookup(t, "custom.x").Schema}) {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(info.Schema))
		if err != nil {
			t.Fatalf("%s: %v", info.Name, err)
		}
		c := jsonschema.NewCompiler()
		c.DefaultDraft(jsonschema.Draft2020)
		if err := c.AddResource(info.Name, doc); err != nil {
			t.Fatalf("%s: %v", info.Name, err)
		}
		if compiled[info.Name], err = c.Compile(info.Name); err != nil {
			t.Fatalf("%s: %v", info.Name, err)
		}
	}
	return compiled
}

func lookup(t testing.TB, name string) schema.TypeInfo {
	t.Helper()
	info, err := schema.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func validate(schemas map[string]*jsonschema.Schema, typ string, payload []byte) error {
	if strings.HasPrefix(typ, "custom.") {
		typ = "custom.*"
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(payload)))
	if err != nil {
		return err
	}
	return schemas[typ].Validate(doc)
}

// TestScenariosFitTheirSchemas holds every scenario event and every example to the JSON Schema.
func TestScenariosFitTheirSchemas(t *testing.T) {
	schemas := compile(t)
	used := map[string]bool{}
	for _, s := range append(schematest.All(), schematest.Generate(2000, 5)) {
		for i, e := range s.Events {
			used[e.Type] = true
			if err := validate(schemas, e.Type, e.Payload); err != nil {
				t.Errorf("%s event %d %s: %v", s.Name, i, e.Type, err)
			}
		}
	}
	for typ, payloads := range examples {
		for _, p := range payloads {
			if err := validate(schemas, typ, []byte(p)); err != nil {
				t.Errorf("%s: %v", typ, err)
			}
		}
	}
	for _, info := range schema.Types() {
		if info.Native && !used[info.Name] {
			t.Errorf("no scenario has a %s", info.Name)
		}
	}
}

// TestSchemasRefuse shows that the schemas are no formality: each refuses what its type cannot do
// without, and a field of a wrong kind.
func TestSchemasRefuse(t *testing.T) {
	schemas := compile(t)
	for typ, payloads := range map[string][]string{
		"reasoning.delta": {`{}`, `{"text":1}`, `{"text":"x","index":-1}`, `[]`},
		"text.delta":      {`{}`, `{"text":null}`, `{"text":"x","index":1.5}`},
		"tool.start":      {`{"tool":"x"}`, `{"call_id":"","tool":"x"}`, `{"call_id":"c"}`},
		"tool.end":        {`{"call_id":"c"}`, `{"call_id":"c","ok":"yes"}`, `{"call_id":"c","ok":true,"duration_ms":-1}`},
		"step.boundary":   {`{"step_index":0,"step_kind":"other"}`, `{"step_kind":"plan"}`},
		"child.spawn":     {`{}`, `{"child_id":"a.b"}`, `{"child_id":">"}`, `{"child_id":"x","tools_allowed":[1]}`},
		"plan.proposal": {`{}`, `{"plan":{}}`, `{"plan":{"id":"p","steps":[{"id":"s"}]}}`,
			`{"plan":{"id":"p","steps":[{"id":"s","title":"t","intent":"guess"}]}}`},
		"run.lifecycle":      {`{}`, `{"state":"finished"}`, `{"state":"done","reason":1}`},
		"message.start":      {`{"message_id":"m"}`, `{"message_id":"m","role":"robot"}`},
		"message.end":        {`{}`, `{"message_id":"m","content":"x"}`, `{"message_id":"m","content":["x"]}`},
		"block.start":        {`{"index":0}`, `{"kind":"text"}`},
		"block.end":          {`{}`, `{"index":0,"complete":1}`},
		"tool.input.delta":   {`{"text":"x"}`, `{"call_id":"c"}`},
		"tool.output.delta":  {`{"text":"x"}`, `{"call_id":"","text":"x"}`},
		"data.delta":         {`{"data":"x"}`, `{"media_type":"x"}`},
		"model.start":        {`{}`},
		"model.end":          {`{}`, `{"call_id":"c","usage":1}`},
		"turn.start":         {`{}`, `{"turn_id":""}`},
		"turn.end":           {`{}`},
		"input.requested":    {`{}`, `{"request_id":"r","options":{}}`},
		"input.answered":     {`{}`},
		"state.values":       {`{}`},
		"state.update":       {`{}`, `{"values":1,"node":2}`},
		"checkpoint.created": {`{}`, `{"checkpoint_id":""}`},
		"task.start":         {`{}`},
		"task.end":           {`{}`, `{"task_id":"t","ok":1}`},
		"progress":           {`[]`, `{"done":"1"}`},
		"commands.taken":     {`{}`, `{"through":0}`},
		"loss":               {`{}`, `{"reason":""}`, `{"reason":"x","events":-1}`},
		"command.message":    {`{}`, `{"content":1}`},
		"command.cancel":     {`{"reason":1}`},
		"command.answer":     {`{}`},
		"session.created": {`[]`, `{"agent":7}`, `{"title":1}`, `{"metadata":[]}`, `{"resources":{}}`,
			`{"vault_ids":"v"}`, `{"incremental_streaming_enabled":null}`},
		"session.updated":  {`{"metadata":"x"}`, `{"environment_id":1}`, `{"memory_store_ids":0}`},
		"session.archived": {`[]`, `null`},
		"session.deleted":  {`"now"`},
		"custom.any":       {`[]`, `"x"`},
	} {
		for _, p := range payloads {
			if validate(schemas, typ, []byte(p)) == nil {
				t.Errorf("%s accepts %s", typ, p)
			}
		}
	}
}

func TestCatalogueFlags(t *testing.T) {
	native := 0
	for _, info := range schema.Types() {
		if info.Delta == info.Control {
			t.Errorf("%s: delta %v, control %v: must be one of them", info.Name, info.Delta, info.Control)
		}
		if info.Delta != strings.HasSuffix(info.Name, ".delta") {
			t.Errorf("%s: delta is %v", info.Name, info.Delta)
		}
		if info.Terminal != (info.Name == schema.TypeRunLifecycle) {
			t.Errorf("%s: terminal is %v", info.Name, info.Terminal)
		}
		if info.Family == "" || !strings.HasPrefix(info.Name, string(info.Family)) &&
			info.Family != schema.FamilyMessage && info.Family != schema.FamilyLifecycle {
			t.Errorf("%s: family %q", info.Name, info.Family)
		}
		if got := lookup(t, info.Name); got != info {
			t.Errorf("Lookup(%s) = %+v", info.Name, got)
		}
		if r := (schema.Record{Type: []byte(info.Name)}); r.IsDelta() != info.Delta {
			t.Errorf("%s: IsDelta %v", info.Name, r.IsDelta())
		}
		if info.Native {
			native++
		}
	}
	if native != 8 {
		t.Errorf("%d native types, the protocol has 8", native)
	}
	if info := lookup(t, "custom.a.b-c_D9"); info.Family != schema.FamilyCustom || info.Delta || !info.Control {
		t.Errorf("custom: %+v", info)
	}
	types := schema.Types()
	types[0].Name = "overwritten"
	if _, err := schema.Lookup("reasoning.delta"); err != nil {
		t.Error("Types gives the table itself")
	}
}

func TestLookupRefuses(t *testing.T) {
	for _, name := range []string{
		"", "text", "Text.delta", "text.delta ", "text.delta\n", "text.deltas", "custom", "custom.", "custom. x",
		"custom.\"", "custom.x\r\n",
		"custom.ü", "customx.y", "command.", "command.explode", "custom." + strings.Repeat("x", 100),
	} {
		if _, err := schema.Lookup(name); !errors.Is(err, schema.ErrUnknownType) {
			t.Errorf("Lookup(%q): %v", name, err)
		}
	}
}
