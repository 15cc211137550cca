package edgetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/oasdiff/yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/goleak"

	"agentstream/schema/contracts"
)

// described are the tags of the routes whose answers are held to the description that a server gives of them.
var described = []string{"sessions", "metis", "threads"}

// contract is the description of the routes, and what was seen of it.
type contract struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	routes   []contractRoute
	seen     map[string]bool // as promises has them
}

// contractRoute is what is said of one method on one path.
type contractRoute struct {
	method, tag, summary string
	path                 *regexp.Regexp
	params               int
	at                   string // JSON pointer of the operation
	request              bool   // its body is described
	answers              map[string]map[string]any
}

var description = sync.OnceValues(func() (*contract, error) {
	var doc map[string]any
	if _, err := yaml.Unmarshal(contracts.OpenAPI(), &doc, yaml.DecodeOpts{}); err != nil {
		return nil, err
	}
	strict(doc)
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d := &contract{compiler: jsonschema.NewCompiler(), seen: map[string]bool{}}
	d.compiler.AssertFormat()
	var paths struct {
		Paths map[string]map[string]struct {
			Summary     string
			Tags        []string
			RequestBody map[string]any
			Responses   map[string]map[string]any
		}
	}
	if err := errors.Join(json.Unmarshal(text, &paths), d.compiler.AddResource("urn:openapi", whole)); err != nil {
		return nil, err
	}
	for path, methods := range paths.Paths {
		for method, op := range methods {
			if !slices.Contains(described, op.Tags[0]) {
				continue
			}
			form := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), "[^/]+")
			d.routes = append(d.routes, contractRoute{strings.ToUpper(method), op.Tags[0], op.Summary,
				regexp.MustCompile("^" + form + "$"), strings.Count(path, "{"),
				"/paths/" + escapePointer(path) + "/" + method, op.RequestBody != nil, op.Responses})
		}
	}
	slices.SortFunc(d.routes, func(a, b contractRoute) int { return cmp.Or(a.params-b.params, strings.Compare(a.at, b.at)) })
	return d, nil
})

var pointer = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")

// escapePointer escapes a part of a JSON pointer (RFC 6901).
func escapePointer(part string) string { return pointer.Replace(part) }

// strict closes the objects whose fields are described: a client must pass over fields that it does not know, and a
// server must not send any that nobody is told of.
func strict(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, open := v["additionalProperties"]; !open && v["properties"] != nil {
			v["additionalProperties"] = false
		}
		for _, below := range v {
			strict(below)
		}
	case []any:
		for _, below := range v {
			strict(below)
		}
	}
}

// hold compares a request and its answer with the description.
func hold(t testing.TB, r *http.Request, sent, kind string, a Answer) {
	t.Helper()
	d, err := description()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(d.routes, func(rt contractRoute) bool { return rt.method == r.Method && rt.path.MatchString(r.URL.Path) })
	if i < 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(&d.routes[i], sent, kind, a); err != nil {
		t.Errorf("openapi.yaml: %s: %d %.300s: %v", a.Asked, a.Status, a.Body, err)
	}
}

// check returns an error unless an answer is one that the contract has.
func (d *contract) check(rt *contractRoute, sent, kind string, a Answer) error {
	status := strconv.Itoa(a.Status)
	said := rt.answers[status]
	if said == nil && a.Status >= 400 {
		status, said = "default", rt.answers["default"]
	}
	if said == nil {
		return errors.New("there is no such status")
	}
	d.seen[rt.promise(status)] = true
	content, _ := said["content"].(map[string]any)
	ctype, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	switch {
	case content == nil && a.Body != "":
		return errors.New("it has a body")
	case content != nil && content[ctype] == nil:
		return fmt.Errorf("there is no content of type %q", ctype)
	case ctype != "application/json":
		return nil
	}
	if err := d.valid(rt.at+"/responses/"+status+"/content/application~1json/schema", a.Body); err != nil {
		return err
	}
	// of a command of LangChain's, which is answered 200
	refused := a.Status >= 300 || strings.HasPrefix(a.Body, `{"type":"error"`)
	if ctype, _, _ := mime.ParseMediaType(kind); refused || sent == "" || ctype != "application/json" {
		return nil
	}
	if !rt.request {
		return errors.New("it takes no body")
	}
	return d.valid(rt.at+"/requestBody/content/application~1json/schema", sent)
}

func (d *contract) valid(at, text string) error {
	s, err := d.compiler.Compile("urn:openapi#" + at)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// promise names an answer of a route, below whatever base.
func (rt *contractRoute) promise(status string) string {
	return fmt.Sprintf("%s %s: %s", rt.method, rt.summary, status)
}

// Main runs the tests of a protocol's package, which must leave no goroutine behind. When all of them have run, every
// answer in JSON, or without a body, that the routes with the tag are described with must have come.
func Main(m *testing.M, tag string) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		if flag.Lookup("test.run").Value.String() == "" && !testing.Short() && status == 0 {
			status = unseen(os.Stderr, tag)
		}
		os.Exit(status)
	}))
}

func unseen(w io.Writer, tag string) (status int) {
	d, err := description()
	if err != nil {
		fmt.Fprintln(w, err)
		return 1
	}
	missing := map[string]bool{}
	for _, rt := range d.routes {
		for answer, said := range rt.answers {
			content, _ := said["content"].(map[string]any)
			// sockets have tests of their own
			read := rt.answers["101"] == nil && (content == nil || content["application/json"] != nil)
			if rt.tag == tag && answer != "default" && read && !d.seen[rt.promise(answer)] {
				missing[rt.promise(answer)] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintln(w, "openapi.yaml has an answer that never came:", name)
		status = 1
	}
	return status
}
