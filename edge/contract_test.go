package edge_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oasdiff/yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/ends"
)

const contractsDir = "../schema/contracts"

// contract is schema/contracts/openapi.yaml, or a text in its place, and what was seen of it.
type contract struct {
	doc      *openapi3.T
	always   openapi3.Headers // of every response
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // of the document, by JSON pointer
	seen     map[string]bool               // "POST /v1/… 409 RUN-EXISTS"
	good     map[string]bool               // headers and events that were found to be so
}

// parseContract reads a contract. Its schemas are JSON Schema 2020-12 as they stand (OpenAPI 3.1 §4.8.24).
func parseContract(text []byte) (*contract, error) {
	var whole any
	if _, err := yaml.Unmarshal(text, &whole, yaml.DecodeOpts{}); err != nil {
		return nil, err
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	c := &contract{doc: doc, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{},
		seen: map[string]bool{}, good: map[string]bool{}}
	c.compiler.AssertFormat()
	b, err := json.Marshal(doc.Extensions["x-headers-of-every-response"])
	if err == nil {
		err = json.Unmarshal(b, &c.always)
	}
	if err != nil || len(c.always) == 0 {
		return nil, fmt.Errorf("x-headers-of-every-response: %d, %w", len(c.always), err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return c, c.compiler.AddResource("urn:openapi", value)
}

// fits holds a value to a schema of the document.
func (c *contract) fits(pointer string, value any) error {
	sch := c.schemas[pointer]
	if sch == nil {
		var err error
		if sch, err = c.compiler.Compile("urn:openapi#" + pointer); err != nil {
			return err
		}
		c.schemas[pointer] = sch
	}
	return sch.Validate(value)
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")

func pointerTo(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + pointerEscape.Replace(p))
	}
	return b.String()
}

// eventSchemas are the JSON Schemas beside the contract that it names.
var eventSchemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	compiler := jsonschema.NewCompiler()
	files, err := filepath.Glob(contractsDir + "/events/*.schema.json")
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, path := range append(files, contractsDir+"/snapshot.schema.json") {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		id, _ := doc.(map[string]any)["$id"].(string)
		if err := compiler.AddResource(id, doc); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		name, err := filepath.Rel(contractsDir, path)
		if err != nil {
			return nil, err
		}
		ids[filepath.ToSlash(name)] = id
	}
	named := map[string]*jsonschema.Schema{}
	for _, name := range []string{"events/any.schema.json", "snapshot.schema.json"} {
		if named[name], err = compiler.Compile(ids[name]); err != nil {
			return nil, err
		}
	}
	return named, nil
})

func contractYAML(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile(contractsDir + "/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func readContract(t testing.TB) *contract {
	t.Helper()
	c, err := parseContract(contractYAML(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// operation returns what the contract says of a method on a path; nil for nothing.
func (c *contract) operation(method, path string) *openapi3.Operation {
	item := c.doc.Paths.Value(path)
	if item == nil {
		return nil
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return item.GetOperation(method)
}

// routes says how the server's table of routes and the contract differ.
func (c *contract) routes(table []edge.RouteRow) error {
	var all []error
	served := map[string]bool{}
	for _, rt := range table {
		name := rt.Method + " " + rt.Path
		served[name] = true
		op := c.operation(rt.Method, rt.Path)
		if op == nil {
			all = append(all, fmt.Errorf("%s is served and not told", name))
			continue
		}
		if op.Security == nil || !slices.Equal(scopesOf(*op.Security), rt.Needs.Names()) {
			all = append(all, fmt.Errorf("%s needs %v, and the contract says something else", name, rt.Needs.Names()))
		}
		if (op.Responses.Value("401") != nil) != (rt.Needs != 0) {
			all = append(all, fmt.Errorf("%s: 401", name))
		}
	}
	for path, item := range c.doc.Paths.Map() {
		for method := range item.Operations() {
			if !served[method+" "+path] {
				all = append(all, fmt.Errorf("%s %s is told and not served", method, path))
			}
		}
	}
	return errors.Join(all...)
}

func scopesOf(security openapi3.SecurityRequirements) (names []string) {
	for _, r := range security {
		names = append(names, r["bearer"]...)
	}
	return names
}

// exchange is a request and its answer. Path is as in the contract.
type exchange struct {
	method, path string
	edgetest.Reply
}

func (x exchange) String() string {
	return fmt.Sprintf("%s %s: %d %.300q", x.method, x.path, x.Status, x.Body)
}

// verify holds an answer to the contract.
func (c *contract) verify(x exchange) error {
	response, at := c.response(x)
	if response == nil {
		return fmt.Errorf("%s: the contract has no such status", x)
	}
	c.note(x)
	if err := c.headers(response, at, x); err != nil {
		return fmt.Errorf("%s: %w", x, err)
	}
	if x.method == http.MethodHead {
		if x.Body != "" {
			return fmt.Errorf("%s: has a body", x)
		}
		return nil
	}
	if err := c.content(response, at, x); err != nil {
		return fmt.Errorf("%s: %w", x, err)
	}
	return nil
}

// response returns what the contract says of this status, and where; nil for nothing.
func (c *contract) response(x exchange) (*openapi3.Response, string) {
	status := strconv.Itoa(x.Status)
	if op := c.operation(x.method, x.path); op != nil {
		r := op.Responses.Value(status)
		switch {
		case r == nil:
			return nil, ""
		case r.Ref != "":
			return r.Value, strings.TrimPrefix(r.Ref, "#")
		}
		method := strings.ToLower(strings.Replace(x.method, "HEAD", "GET", 1))
		return r.Value, pointerTo("paths", x.path, method, "responses", status)
	}
	var none struct {
		Responses map[string]struct {
			Ref string `json:"$ref"`
		}
	}
	b, err := json.Marshal(c.doc.Extensions["x-no-operation"])
	if err != nil || json.Unmarshal(b, &none) != nil {
		return nil, ""
	}
	ref := none.Responses[status].Ref
	if r := c.doc.Components.Responses[strings.TrimPrefix(ref, "#/components/responses/")]; r != nil {
		return r.Value, strings.TrimPrefix(ref, "#")
	}
	return nil, ""
}

// note remembers what was seen.
func (c *contract) note(x exchange) {
	var p struct{ Error struct{ Code string } }
	_ = json.Unmarshal([]byte(x.Body), &p) // no problem has no code
	c.seen[strings.TrimSpace(fmt.Sprintf("%s %s %d %s", x.method, x.path, x.Status, p.Error.Code))] = true
}

// ofHTTP are headers that no contract needs to tell.
var ofHTTP = []string{"Date", "Content-Length", "Content-Type", "Transfer-Encoding", "Trailer", "Grpc-Accept-Encoding",
	"Grpc-Status", "Grpc-Message"}

func (c *contract) headers(response *openapi3.Response, at string, x exchange) error {
	for name, h := range response.Headers {
		if h.Value.Required && len(x.Header.Values(name)) == 0 {
			return fmt.Errorf("header %s is missing", name)
		}
	}
	for name, values := range x.Header {
		if slices.Contains(ofHTTP, name) || x.Status == http.StatusSwitchingProtocols &&
			(name == "Connection" || name == "Upgrade") {
			continue
		}
		h, pointer := headerNamed(response.Headers, name, at+"/headers")
		if h == nil {
			h, pointer = headerNamed(c.always, name, "/x-headers-of-every-response")
		}
		if h == nil {
			return fmt.Errorf("header %s: %q is not told", name, values)
		}
		if len(values) != 1 && name != "Vary" {
			return fmt.Errorf("header %s stands %d times", name, len(values))
		}
		var value any = values[0]
		if h.Schema.Value.Type.Is("integer") || h.Schema.Ref == "#/components/schemas/Seq" {
			value = json.Number(values[0])
		}
		if err := c.fits(pointer, value); err != nil {
			return fmt.Errorf("header %s: %q: %w", name, values, err)
		}
	}
	return nil
}

// headerNamed returns a header, and where its schema is.
func headerNamed(headers openapi3.Headers, name, at string) (*openapi3.Header, string) {
	for n, h := range headers {
		if http.CanonicalHeaderKey(n) != name {
			continue
		}
		if h.Ref != "" {
			return h.Value, strings.TrimPrefix(h.Ref, "#") + "/schema"
		}
		return h.Value, at + pointerTo(n, "schema")
	}
	return nil, ""
}

func (c *contract) content(response *openapi3.Response, at string, x exchange) error {
	ctype, _, _ := mime.ParseMediaType(x.Header.Get("Content-Type"))
	if len(response.Content) == 0 {
		if x.Body != "" || ctype != "" {
			return errors.New("has content, and the contract tells of none")
		}
		return nil
	}
	media := response.Content[ctype]
	if media == nil {
		return fmt.Errorf("content type %q is not told", x.Header.Get("Content-Type"))
	}
	if media.Schema == nil {
		return nil
	}
	var value any = x.Body
	if ctype == "application/json" {
		var err error
		if value, err = jsonschema.UnmarshalJSON(strings.NewReader(x.Body)); err != nil {
			return err
		}
	}
	if err := c.fits(at+pointerTo("content", ctype, "schema"), value); err != nil {
		return err
	}
	return c.typed(media, ctype, x.Body)
}

// typed holds a body, or the events in it, to the JSON Schema that the contract names.
func (c *contract) typed(media *openapi3.MediaType, ctype, body string) error {
	if file, ok := media.Extensions["x-body"].(string); ok {
		return c.instance(file, body)
	}
	file, ok := media.Extensions["x-items"].(string)
	if !ok {
		return nil
	}
	events, err := eventsIn(ctype, body)
	if err != nil {
		return err
	}
	for _, e := range events {
		if err := c.instance(file, e); err != nil {
			return fmt.Errorf("%w in %.300s", err, e)
		}
	}
	return nil
}

func (c *contract) instance(file, text string) error {
	schemas, err := eventSchemas()
	if err != nil {
		return err
	}
	sch := schemas[file]
	if sch == nil {
		return fmt.Errorf("the contract names %s, which there is not", file)
	}
	if c.good[file+text] {
		return nil
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	if err := sch.Validate(doc); err != nil {
		return err
	}
	c.good[file+text] = true
	return nil
}

// eventsIn takes the events out of a body of any of the three kinds. The last word of a stream is none.
func eventsIn(ctype, body string) (list []string, err error) {
	switch ctype {
	case "application/json":
		var page struct{ Events []json.RawMessage }
		err = json.Unmarshal([]byte(body), &page)
		for _, e := range page.Events {
			list = append(list, string(e))
		}
	case "application/x-ndjson":
		for line := range strings.Lines(body) {
			list = append(list, line)
		}
	case "text/event-stream":
		for frame := range strings.SplitSeq(body, "\n\n") {
			if strings.HasPrefix(frame, "event: ") && !strings.HasPrefix(frame, "event: stream.error\n") { // with event=type
				_, frame, _ = strings.Cut(frame, "\n")
			}
			data, id, _ := strings.Cut(frame, "\n")
			if !strings.HasPrefix(data, "data: ") {
				continue // the hint, a comment, the end
			}
			if !strings.HasPrefix(id, "id: ") || strings.Contains(id, "\n") {
				return nil, fmt.Errorf("frame is not data and id: %.300q", frame)
			}
			list = append(list, strings.TrimPrefix(data, "data: "))
		}
	}
	return list, err
}

// promises returns every status and code that the contract tells of, as note writes them.
func (c *contract) promises() map[string]bool {
	all := map[string]bool{}
	for path, item := range c.doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status, r := range op.Responses.Map() {
				name := method + " " + path + " " + status
				codes := codesOf(r.Value)
				if len(codes) == 0 {
					all[name] = true
				}
				for _, code := range codes {
					all[name+" "+code] = true
				}
			}
		}
	}
	return all
}

// codesOf returns the error codes of a refusal.
func codesOf(r *openapi3.Response) (codes []string) {
	media := r.Content["application/json"]
	if media == nil || media.Schema == nil {
		return nil
	}
	for _, part := range media.Schema.Value.AllOf {
		e := part.Value.Properties["error"]
		if e == nil || e.Value.Properties["code"] == nil {
			continue
		}
		for _, v := range e.Value.Properties["code"].Value.Enum {
			codes = append(codes, v.(string))
		}
	}
	return codes
}

// kept says which promises were not seen to be kept, but for those that are excused.
func (c *contract) kept() error {
	var all []error
	for _, p := range slices.Sorted(maps.Keys(c.promises())) {
		if !c.seen[p] && !excused(p) {
			all = append(all, fmt.Errorf("%s is told and was not seen", p))
		}
		if c.seen[p] && excused(p) {
			all = append(all, fmt.Errorf("%s was seen: it needs no excuse", p))
		}
	}
	return errors.Join(all...)
}

// TestContractCodes: the contract and the table of ends know the same pairs of status and code.
func TestContractCodes(t *testing.T) {
	c := readContract(t)
	told := map[string]bool{"204 ENDED": true}
	for name, r := range c.doc.Components.Responses {
		for _, code := range codesOf(r.Value) {
			for _, status := range statusesOf(c.doc, name) {
				told[status+" "+code] = true
			}
		}
	}
	table := map[string]bool{}
	for _, r := range dialect.Reasons() {
		o := ends.OutcomeOf(r)
		table[fmt.Sprintf("%d %s", o.Status, o.Code)] = true
	}
	for _, unseen := range []string{"499 KAI-STREAM-CONN-0001", "503 KAI-STREAM-BUF-0001", "503 OVERFLOW",
		"422 UNPROCESSABLE"} {
		// in logs alone, or of protocols that bound what waits, or tell 422 from 400
		if !table[unseen] || told[unseen] {
			t.Errorf("%s", unseen)
		}
		delete(table, unseen)
	}
	if !maps.Equal(told, table) {
		t.Errorf("told\n%v\nthe table\n%v", slices.Sorted(maps.Keys(told)), slices.Sorted(maps.Keys(table)))
	}
}

// statusesOf returns the statuses that a response of the components is told with.
func statusesOf(doc *openapi3.T, name string) (list []string) {
	if name == "MethodNotAllowed" { // matches no operation
		return []string{"405"}
	}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			for status, r := range op.Responses.Map() {
				if r.Ref == "#/components/responses/"+name && !slices.Contains(list, status) {
					list = append(list, status)
				}
			}
		}
	}
	return list
}

// TestContractHasEveryRoute compares the contract with the server's own table of routes.
func TestContractHasEveryRoute(t *testing.T) {
	if err := readContract(t).routes(newMatrix(t).table); err != nil {
		t.Error(err)
	}
}

// TestContractEvents: the event of the contract is the envelope of the JSON Schemas.
func TestContractEvents(t *testing.T) {
	text, err := os.ReadFile(contractsDir + "/events/envelope.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct {
		Required   []string
		Properties map[string]any
	}
	if err := json.Unmarshal(text, &envelope); err != nil {
		t.Fatal(err)
	}
	c := readContract(t)
	e, n := c.doc.Components.Schemas["Event"].Value, c.doc.Components.Schemas["NewEvent"].Value
	want := slices.Sorted(maps.Keys(envelope.Properties))
	if got := slices.Sorted(maps.Keys(e.Properties)); !slices.Equal(got, want) ||
		!slices.Equal(e.Required, envelope.Required) {
		t.Errorf("event has %v, needs %v", got, e.Required)
	}
	if got := slices.Sorted(maps.Keys(n.Properties)); !slices.Equal(got, want) ||
		!slices.Equal(n.Required, []string{"type"}) {
		t.Errorf("new event has %v, needs %v", got, n.Required)
	}
	for _, name := range auth.ScopeAll.Names() {
		if !strings.Contains(string(contractYAML(t)), "- bearer: ["+name+"]") {
			t.Errorf("no operation needs %s", name)
		}
	}
}
