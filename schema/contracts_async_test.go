package schema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/oasdiff/yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// asyncAPI is contracts/asyncapi.yaml.
type asyncAPI struct {
	AsyncAPI string
	Channels map[string]struct {
		Address    string
		Parameters map[string]struct {
			Pattern string `json:"x-pattern"`
		}
		Messages map[string]struct {
			Ref string `json:"$ref"`
		}
	}
	Operations map[string]struct{ Action string }
	Components struct {
		Messages map[string]struct {
			Headers, Payload struct {
				Ref string `json:"$ref"`
			}
			Examples []struct {
				Headers map[string]string
				Payload string
			}
		}
		Schemas map[string]struct {
			Required   []string
			Properties map[string]any
			Items      string `json:"x-items"`
		}
	}
	doc any
}

func readAsyncAPI(t testing.TB) *asyncAPI {
	t.Helper()
	text, err := os.ReadFile("contracts/asyncapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	a := new(asyncAPI)
	if _, err = yaml.Unmarshal(text, &a.doc, yaml.DecodeOpts{}); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(a.doc)
	if err == nil {
		err = json.Unmarshal(b, a)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// compile returns a JSON Schema of the document.
func (a *asyncAPI) compile(t testing.TB, ref string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:asyncapi", a.doc); err != nil {
		t.Fatal(err)
	}
	sch, err := c.Compile("urn:asyncapi" + ref)
	if err != nil {
		t.Fatal(err)
	}
	return sch
}

// subject returns the pattern of a channel's subjects.
func (a *asyncAPI) subject(t testing.TB, channel string) *regexp.Regexp {
	t.Helper()
	c := a.Channels[channel]
	pattern := regexp.QuoteMeta(c.Address)
	for name, p := range c.Parameters {
		brace := regexp.QuoteMeta("{" + name + "}")
		if !strings.Contains(pattern, brace) || p.Pattern == "" {
			t.Fatalf("%s: parameter %s", channel, name)
		}
		pattern = strings.ReplaceAll(pattern, brace, "("+strings.Trim(p.Pattern, "^$")+")")
	}
	return regexp.MustCompile("^" + pattern + "$")
}

// single returns headers as NATS has them, each of which stands once.
func single(t testing.TB, h map[string][]string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for name, values := range h {
		if len(values) != 1 {
			t.Errorf("%s: %q", name, values)
		}
		out[name] = values[0]
	}
	return out
}

// TestAsyncAPIRefs: what the document refers to is there, and so are the operations of a tap.
func TestAsyncAPIRefs(t *testing.T) {
	a := readAsyncAPI(t)
	if a.AsyncAPI != "3.0.0" || len(a.Operations) != 2 || len(a.Channels) != 2 {
		t.Errorf("%s, %v", a.AsyncAPI, a.Operations)
	}
	for name, o := range a.Operations {
		if o.Action != "receive" {
			t.Errorf("a tap must not write: %s is %s", name, o.Action)
		}
	}
	n := 0
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				n++
				at := a.doc
				for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
					m, _ := at.(map[string]any)
					at = m[part]
				}
				if at == nil {
					t.Errorf("there is no %s", ref)
				}
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	if walk(a.doc); n < 10 {
		t.Errorf("%d references", n)
	}
	if _, err := os.Stat("contracts/" + a.Components.Schemas["lines"].Items); err != nil {
		t.Error(err)
	}
}

// variants are packs in every form in which headers come: of all scenarios, with and without what may
// be absent.
func variants() (packs []schema.Pack) {
	for _, s := range append(schematest.All(), schematest.Generate(1500, 4)) {
		for i, p := range schematest.Packs(acme, s, 9) {
			if packs = append(packs, p); i%3 == 0 {
				p.Batch, p.Part = fmt.Sprintf("%032x", i), i
				packs = append(packs, p)
			}
		}
	}
	bare := packs[0]
	bare.Head.State, bare.Head.Lane = "", schema.Lane{}
	return append(packs, bare)
}

// TestAsyncAPIRefuses: what the document does not allow is no pack for schema.ParsePack either.
func TestAsyncAPIRefuses(t *testing.T) {
	a := readAsyncAPI(t)
	headers, body := a.compile(t, "#/components/schemas/packHeaders"), a.compile(t, "#/components/schemas/lines")
	p := schematest.Packs(acme, schematest.ByName("children"), 4)[0]
	subject := schema.Subject(p.Key, p.Child, 8)
	for _, tt := range []struct{ name, value string }{
		{schema.HeaderSeq, ""}, {schema.HeaderSeq, "0"}, {schema.HeaderSeq, "-1"}, {schema.HeaderSeq, "1.5"},
		{schema.HeaderSeq, "99999999999999999"},
		{schema.HeaderCount, "0"}, {schema.HeaderCount, "x"}, {schema.HeaderCount, "10000"},
		{schema.HeaderDay, "2026-01-02"}, {schema.HeaderDay, ""},
		{schema.HeaderState, "finished"}, {schema.HeaderLane, "owner/"}, {schema.HeaderLane, "owner/-1"},
		{schema.HeaderLastID, "a b"}, {schema.HeaderBatch, "x"}, {schema.HeaderBatch, "0/-1"},
	} {
		h := p.Headers()
		h[tt.name] = []string{tt.value}
		if headers.Validate(single(t, h)) == nil {
			t.Errorf("the document allows %s: %q", tt.name, tt.value)
		}
		if _, err := schema.ParsePack(subject, h, p.Body, 1); err == nil {
			t.Errorf("ParsePack takes %s: %q", tt.name, tt.value)
		}
	}
	for _, b := range []string{"", "\n", "{}", "{}\n\n", "[]\n", "{}\n{}", "{}\n{"} {
		if body.Validate(b) == nil {
			t.Errorf("the document allows the body %.20q", b)
		}
	}
	stored, live := a.subject(t, "packs"), a.subject(t, "live")
	for _, s := range []string{
		"agent.0.acme.run", "agent.0.acme.run.-.x", "agent.x.acme.run.-", "agent.01.acme.run.-", "agent.0..run.-",
		"agent.0.a*.run.-", "agent.0.acme.-.-", "agent.0.acme.>.-",
		"agent.0.acme.run.", "agent.0.acme.ru n.-", "agent.0." + strings.Repeat("t", 65) + ".run.-",
		"agent.0.acme." + strings.Repeat("r", 129) + ".-", "AGENT.0.acme.run.-", "",
	} {
		if stored.MatchString(s) || live.MatchString("live."+s) {
			t.Errorf("the document allows the subject %q", s)
		}
	}
	if !stored.MatchString("agent.255.a.--.kid") {
		t.Error("a good subject does not match")
	}
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	if prefix, ok := strings.CutSuffix(schema.LiveFilter(key, 8), ">"); !ok || !live.MatchString(prefix+"-") ||
		!live.MatchString(prefix+"kid") {
		t.Errorf("live filter %s", schema.LiveFilter(key, 8))
	}
	if prefix, ok := strings.CutSuffix(schema.PartitionFilter(7), ">"); !ok || !stored.MatchString(prefix+"acme.run.-") {
		t.Errorf("partition filter %s", schema.PartitionFilter(7))
	}
}
