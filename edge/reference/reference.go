package reference

import (
	"bytes"
	"cmp"
	_ "embed" // the page is a part of the program
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/oasdiff/yaml"

	"agentstream/schema/contracts"
)

// Patterns are what Handler answers.
var Patterns = []string{"GET /openapi.yaml", "GET /asyncapi.yaml", "GET /reference", "GET /reference/style.css"}

const policy = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var (
	//go:embed page.html
	page string
	//go:embed style.css
	style []byte
)

// Handler returns the handler of all Patterns. The page names the version.
func Handler(version string) (http.Handler, error) {
	doc, err := read(contracts.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	doc.Version = version
	var html bytes.Buffer
	if err := template.Must(template.New("page").Parse(page)).Execute(&html, doc); err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	type file struct {
		kind    string
		content []byte
	}
	files := map[string]file{
		"/openapi.yaml":        {"application/yaml; charset=utf-8", contracts.OpenAPI()},
		"/asyncapi.yaml":       {"application/yaml; charset=utf-8", contracts.AsyncAPI()},
		"/reference":           {"text/html; charset=utf-8", html.Bytes()},
		"/reference/style.css": {"text/css; charset=utf-8", style},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
	}), nil
}

// document is what the page shows of an OpenAPI document.
type document struct {
	Version string
	Info    struct{ Title, Summary, Description string }
	Groups  []*tagGroup
	Schemas []schema
}

// schema is one that bodies refer to by its name.
type schema struct{ Name, Text string }

// tagGroup is the operations of one tag.
type tagGroup struct {
	Name, Description string
	Operations        []operation
}

type operation struct {
	Method, Path, Curl   string
	Summary, Description string
	Tags                 []string
	Security             []map[string][]string
	Parameters           []parameter
	RequestBody          json.RawMessage
	Responses            map[string]response
}

// Scopes returns what a credential must allow.
func (o operation) Scopes() (names []string) {
	for _, s := range o.Security {
		names = append(names, s["bearer"]...)
	}
	return names
}

var reference = regexp.MustCompile(`"#/components/schemas/([^"]+)"`)

// schemasIn returns the names of the schemas that a description refers to.
func schemasIn(text []byte) (names []string) {
	for _, m := range reference.FindAllSubmatch(text, -1) {
		if name := string(m[1]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Schemas returns the names of the schemas that the body refers to.
func (o operation) Schemas() []string { return schemasIn(o.RequestBody) }

// Body returns the description of the body as indented JSON; "" for none.
func (o operation) Body() string {
	return indent(o.RequestBody)
}

// indent returns a JSON text indented, "" if it is none.
func indent(text []byte) string {
	var out bytes.Buffer
	if len(text) == 0 || json.Indent(&out, text, "", "  ") != nil {
		return ""
	}
	return out.String()
}

type parameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
}

type response struct {
	Ref         string `json:"$ref"`
	Description string
	Content     json.RawMessage
}

// Schemas returns the names of the schemas that the answer refers to.
func (r response) Schemas() []string { return schemasIn(r.Content) }

// methods are the keys of a path that are operations.
var methods = []string{"get", "post", "put", "patch", "delete"}

// read reads what the page shows.
func read(text []byte) (*document, error) {
	text, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	var whole struct {
		document
		Tags       []*tagGroup
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Parameters map[string]parameter
			Responses  map[string]response
			Schemas    map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	tagged := map[string]*tagGroup{}
	for _, g := range whole.Tags {
		tagged[g.Name] = g
	}
	for path, item := range whole.Paths {
		for _, method := range methods {
			if item[method] == nil {
				continue
			}
			o := operation{Method: strings.ToUpper(method), Path: path}
			if err := json.Unmarshal(item[method], &o); err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			for i, p := range o.Parameters {
				if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
					o.Parameters[i] = whole.Components.Parameters[name]
				}
			}
			for status, r := range o.Responses {
				if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
					o.Responses[status] = whole.Components.Responses[name]
				}
			}
			o.Curl = curl(&o)
			if len(o.Tags) == 0 || tagged[o.Tags[0]] == nil {
				return nil, fmt.Errorf("%s %s has no tag of the document", method, path)
			}
			g := tagged[o.Tags[0]]
			g.Operations = append(g.Operations, o)
		}
	}
	for _, g := range whole.Tags {
		slices.SortFunc(g.Operations, func(a, b operation) int {
			return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method))
		})
	}
	whole.Groups = whole.Tags
	for _, name := range slices.Sorted(maps.Keys(whole.Components.Schemas)) {
		whole.document.Schemas = append(whole.document.Schemas, schema{name, indent(whole.Components.Schemas[name])})
	}
	return &whole.document, nil
}

// curl returns a command that asks an operation.
func curl(o *operation) string {
	var b strings.Builder
	b.WriteString("curl -N")
	if o.Method != http.MethodGet {
		b.WriteString(" -X " + o.Method)
	}
	if len(o.Security) > 0 {
		b.WriteString(` -H "Authorization: Bearer $TOKEN"`)
	}
	if len(o.RequestBody) > 0 {
		b.WriteString(" -H 'Content-Type: application/json' -d @body.json")
	}
	return b.String() + ` "$SERVER` + o.Path + `"`
}
