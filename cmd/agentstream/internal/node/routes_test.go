package node

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oasdiff/yaml"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/workers"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/protocols/otlp"
	"agentstream/schema/contracts"
)

var update = flag.Bool("update", false, "write schema/contracts/routes.yaml anew")

// spoken are the protocols whose bodies are described in files beside them, with what stands before the paths.
var spoken = []struct {
	tag, page, file string
	bases           []string
}{
	{"sessions", "docs/dialects/qoder.md", "protocols/qoder/openapi.yaml",
		[]string{"/api/v1/cloud/v1", "/api/v1/cloud", "/v1"}},
	{"metis", "docs/dialects/metis.md", "protocols/metis/openapi.yaml", []string{"/metis"}},
	{"threads", "docs/dialects/langchain.md", "protocols/langgraph/openapi.yaml", []string{"/langgraph", ""}},
	{"ai-sdk", "docs/dialects/ai-sdk.md", "protocols/aisdk/openapi.yaml", []string{""}},
	{"ag-ui", "docs/dialects/agui.md", "protocols/agui/openapi.yaml", []string{""}},
	{"openai", "docs/dialects/openai.md", "protocols/openai/openapi.yaml", []string{""}},
	{"otlp", "docs/otlp.md", "protocols/otlp/openapi.yaml", []string{""}},
}

// pages are the routes for people with a browser.
var pages = map[string]string{
	"GET /":                        "Leads browsers to the console",
	"GET /console":                 "Leads to the console",
	"GET /console/":                "The console, a page to watch runs and steer them",
	"GET /console/{file}":          "A file of the console",
	"GET /console/{folder}/{file}": "A file of the console",
	"GET /openapi.yaml":            "This document",
	"GET /asyncapi.yaml":           "What taps read from NATS",
	"GET /reference":               "This document as a page",
	"GET /reference/style.css":     "The style of that page",
}

// rpcPrefix is where services of the runtime stand. Their methods are named by what they do.
const rpcPrefix = "/nimi.runtime.v1."

// object is one of JSON.
type object = map[string]any

// fragment is what a protocol's file says.
type fragment struct {
	Paths   map[string]map[string]object
	Refused string // the schema of refusals
	Schemas map[string]object
}

const root = "../../../../"

func readFragment(t *testing.T, file string) (f fragment) {
	t.Helper()
	text, err := os.ReadFile(root + file)
	if err == nil {
		_, err = yaml.Unmarshal(text, &f, yaml.DecodeOpts{})
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return f
}

// operations returns what is said of routes, as "METHOD /path", and the schemas that it refers to.
func operations(t *testing.T, table []edge.RouteRow) (ops map[string]object, schemas map[string]object) {
	t.Helper()
	ops, schemas = map[string]object{}, map[string]object{}
	plain := func(tag, page, summary string) object {
		return object{"tags": []any{tag}, "summary": summary, "description": "The protocol is described in " + page + ".",
			"responses": object{"default": object{"description": "Answers and refusals are those of the protocol."}}}
	}
	for _, rt := range table {
		name := rt.Method + " " + rt.Path
		if summary := pages[name]; summary != "" {
			ops[name] = plain("pages", "docs/console.md", summary)
		}
		if strings.HasPrefix(rt.Path, rpcPrefix) {
			words := regexp.MustCompile("[A-Z][a-z]+").ReplaceAllStringFunc(rt.Path[strings.LastIndex(rt.Path, "/")+1:],
				func(w string) string { return strings.ToLower(w) + " " })
			ops[name] = plain("runtime", "docs/dialects/runtime.md",
				strings.ToUpper(words[:1])+strings.TrimSpace(words[1:])+" (gRPC)")
		}
	}
	for _, p := range spoken {
		f := readFragment(t, p.file)
		maps.Copy(schemas, f.Schemas)
		refused := object{"description": "A refusal.",
			"content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/" + f.Refused}}}}
		for path, methods := range f.Paths {
			for method, said := range methods {
				for _, base := range p.bases {
					op := maps.Clone(said)
					answers := maps.Clone(said["responses"].(object))
					answers["default"] = refused
					op["responses"], op["tags"], op["description"] = answers, []any{p.tag}, "The protocol is described in "+p.page+"."
					ops[strings.ToUpper(method)+" "+base+path] = op
				}
			}
		}
	}
	return ops, schemas
}

// TestRoutesFile: routes.yaml is made of the table of routes and what is said of them above, and in the protocols'
// files.
func TestRoutesFile(t *testing.T) {
	const file = root + "schema/contracts/routes.yaml"
	rows := table(t)
	ops, schemas := operations(t, rows)
	paths := map[string]map[string]object{}
	for _, rt := range rows {
		if strings.HasPrefix(rt.Path, "/v1/agent/") || strings.HasPrefix(rt.Path, "/agent.v1.") ||
			strings.HasPrefix(rt.Path, "/grpc.") || rt.Path == "/healthz" || rt.Path == "/readyz" {
			continue // openapi.yaml has them
		}
		method := strings.ToLower(rt.Method)
		if paths[rt.Path][method] != nil {
			continue // a stream on the path of another route
		}
		op := ops[rt.Method+" "+rt.Path]
		if op == nil {
			t.Errorf("%s %s: nothing is said of it", rt.Method, rt.Path)
			continue
		}
		delete(ops, rt.Method+" "+rt.Path)
		op["operationId"] = operationID(rt.Method + strings.ReplaceAll(rt.Path+"/", "//", "/index/"))
		security, of := []any{}, []any{}
		for _, scope := range rt.Needs.Names() {
			security = append(security, object{"bearer": []any{scope}})
		}
		for _, part := range strings.Split(rt.Path, "{")[1:] {
			name, _, _ := strings.Cut(part, "}")
			of = append(of, object{"name": name, "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		more, _ := op["parameters"].([]any)
		if of = append(of, more...); len(of) > 0 {
			op["parameters"] = of
		}
		op["security"] = security
		if paths[rt.Path] == nil {
			paths[rt.Path] = map[string]object{}
		}
		paths[rt.Path][method] = op
	}
	for name := range ops {
		t.Errorf("%s is described and not served", name)
	}
	text := "# Routes beside those of openapi.yaml, which is served with these in it. TestRoutesFile of cmd/agentstream/internal/node makes\n" +
		"# this file of the table of routes and protocols/*/openapi.yaml: go test ./cmd/agentstream/internal/node -run TestRoutesFile -update\n" +
		"components:\n  schemas:\n" + lines(t, "    ", schemas) + "paths:\n"
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		text += "  " + path + ":\n" + lines(t, "    ", paths[path])
	}
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != text {
		t.Errorf("%s is not of this table of routes (-update writes it): %v", file, err)
	}
}

// operationID makes an id of what is unique.
func operationID(text string) string {
	return strings.Trim(regexp.MustCompile("[^A-Za-z0-9]+").ReplaceAllString(strings.ToLower(text), "-"), "-")
}

// lines writes each value on a line of its own, as JSON, which is YAML too.
func lines(t *testing.T, indent string, values map[string]object) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b.WriteString(indent + name + ": ")
		if err := enc.Encode(values[name]); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestOpenAPIHasEveryRoute: the document that is served tells of every route of a node, with the scope that it needs,
// and of no other.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	text, err := yaml.YAMLToJSON(contracts.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string][]string{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Summary == "" || op.OperationID == "" || len(op.Tags) != 1 || doc.Tags.Get(op.Tags[0]) == nil {
				t.Errorf("%s %s: summary %q, id %q, tags %v", method, path, op.Summary, op.OperationID, op.Tags)
			}
			for _, part := range strings.Split(path, "{")[1:] {
				name, _, _ := strings.Cut(part, "}")
				if op.Parameters.GetByInAndName("path", name) == nil && item.Parameters.GetByInAndName("path", name) == nil {
					t.Errorf("%s %s: parameter %s is not told", method, path, name)
				}
			}
			scopes := []string{}
			if op.Security != nil {
				for _, s := range *op.Security {
					scopes = append(scopes, s["bearer"]...)
				}
			}
			told[method+" "+path] = scopes
		}
	}
	served := map[string]bool{}
	for _, rt := range table(t) {
		name := rt.Method + " " + rt.Path
		served[name] = true
		if scopes, ok := told[name]; !ok {
			t.Errorf("%s %v is served and not told", name, rt.Needs.Names())
		} else if !slices.Equal(scopes, append([]string{}, rt.Needs.Names()...)) {
			t.Errorf("%s needs %v, told is %v", name, rt.Needs.Names(), scopes)
		}
	}
	for name := range told {
		if !served[name] {
			t.Errorf("%s is told and not served", name)
		}
	}
}

// table returns the routes of a node with everything that it can serve.
func table(t *testing.T) []edge.RouteRow {
	t.Helper()
	log := memory.New()
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log})
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: &memory.Keys{}})
	if err != nil {
		t.Fatal(err)
	}
	f := &ListenFlags{Console: true}
	pages, err := f.pages(nil)
	if err != nil {
		t.Fatal(err)
	}
	open, err := auth.NewOpen(auth.Caller{Tenant: "t", Scopes: auth.ScopeAll}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tickets, err := auth.NewTickets(auth.TicketsConfig{Store: auth.NewMemoryTickets(nil), Still: open.Still})
	if err != nil {
		t.Fatal(err)
	}
	s, err := edge.New(edge.Config{Hub: hub, Taps: struct{ edge.Taps }{}, Blobs: struct{ edge.Blobs }{},
		Operator: struct{ edge.Operator }{}, Shares: new(auth.Shares), Workers: new(workers.Workers), Appender: app,
		Pages: pages, Protocols: f.protocols(otlp.New(otlp.Config{})), Authenticate: open.Authenticate,
		Still: open.Still, Tickets: tickets})
	if err != nil {
		t.Fatal(err)
	}
	if rows := s.Table(); len(rows) > 60 {
		return rows
	}
	t.Fatal(fmt.Sprint("only ", len(s.Table()), " routes"))
	return nil
}
