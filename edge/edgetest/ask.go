package edgetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/producers"
	"agentstream/schema"
)

// Answer is a response that was read whole.
type Answer struct {
	T      testing.TB
	Asked  string
	Status int
	Header http.Header
	Body   string
}

// Do asks; headers are name, value, name, value …
func (n *Node) Do(method, path, body string, headers ...string) Answer {
	n.T.Helper()
	return Do(n.T, n.HTTP, method, "http://"+n.Host+path, body, headers...)
}

// Do asks a server, and holds the answer to what openapi.yaml says of the route.
func Do(t testing.TB, client *http.Client, method, url, body string, headers ...string) Answer {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	a := Answer{t, method + " " + url + " " + body, resp.StatusCode, resp.Header, string(b)}
	hold(t, r, body, r.Header.Get("Content-Type"), a)
	return a
}

// Page is an origin from which nodes can be asked.
const Page = "https://page.example"

// FromPage lets pages of Page ask a node.
func FromPage(c *edge.Config) { c.Origins = []string{Page} }

// Preflight asks as the browser of a page does whether a request may have headers, which are names with spaces between
// them, and returns those that it may not have. The node is started with FromPage.
func (n *Node) Preflight(method, path, headers string) (refused []string) {
	n.T.Helper()
	names := strings.Fields(headers)
	a := n.Do("OPTIONS", path, "", "Origin", Page, "Access-Control-Request-Method", method,
		"Access-Control-Request-Headers", strings.Join(names, ","))
	allowed := func(header, name string) bool {
		return slices.ContainsFunc(strings.Split(a.Header.Get(header), ","), func(s string) bool {
			return strings.EqualFold(strings.TrimSpace(s), name)
		})
	}
	if a.Status != http.StatusNoContent || a.Header.Get("Access-Control-Allow-Origin") != Page ||
		!allowed("Access-Control-Allow-Methods", method) {
		n.T.Errorf("preflight of %s %s: %d %v", method, path, a.Status, a.Header)
	}
	return slices.DeleteFunc(names, func(name string) bool { return allowed("Access-Control-Allow-Headers", name) })
}

// StopAfter reads a stream until a line has a word, stops the node, and returns what came then, and how the body ended.
func (n *Node) StopAfter(path, word string) (rest string, err error) {
	n.T.Helper()
	resp, err := n.HTTP.Get("http://" + n.Host + path)
	if err != nil {
		n.T.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for line := ""; !strings.Contains(line, word); {
		line, err = in.ReadString('\n')
		if err != nil {
			n.T.Fatal(err)
		}
	}
	n.Stop()
	b, err := io.ReadAll(in)
	return string(b), err
}

// requestID is that of a request in the body of a refusal.
var requestID = regexp.MustCompile(`"req_[A-Z0-9]*"`)

// Without returns status and body without an id and without the request's own: what others learn of that id.
func (a Answer) Without(id string) string {
	return fmt.Sprint(a.Status, " ", requestID.ReplaceAllString(strings.ReplaceAll(a.Body, id, "ID"), `""`))
}

// OK holds that a request went well and reads the answer.
func (a Answer) OK(status int) (o Object) {
	a.T.Helper()
	if err := json.Unmarshal([]byte(a.Body), &o); err != nil || a.Status != status {
		a.T.Fatalf("%s: %d, want %d: %v: %s", a.Asked, a.Status, status, err, a.Body)
	}
	return o
}

// Object is a JSON object that was read.
type Object map[string]any

// Str returns the text at a path of names; "" where there is none.
func (o Object) Str(names ...string) string {
	s, _ := o.At(names...).(string)
	return s
}

// At returns the value at a path of names; nil where there is none.
func (o Object) At(names ...string) (v any) {
	v = map[string]any(o)
	for _, name := range names {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// Key names a run of the tenant.
func Key(run string) schema.RunKey { return schema.RunKey{Tenant: Tenant, Run: run} }

// Say appends events to a run as an agent would.
func (n *Node) Say(run string, events ...schema.Event) {
	n.T.Helper()
	if err := n.Append(run, events...); err != nil {
		n.T.Fatal(err)
	}
}

// Append is Says that returns its error.
func (n *Node) Append(run string, events ...schema.Event) error {
	return Append(n.Nodes.Log, run, events...)
}

// Append appends events to a run in a log.
func Append(log producers.Log, run string, events ...schema.Event) error {
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		return err
	}
	for i := range events {
		if err := events[i].Prepare(run); err != nil {
			return err
		}
	}
	_, err = app.Append(context.Background(), Key(run), events, producers.AppendOptions{})
	return err
}

// Event makes an event.
func Event(typ, payload string) schema.Event {
	return schema.Event{Type: typ, Payload: []byte(payload)}
}

// Types returns the types of a run's records.
func (n *Node) Types(run string) (types []string) {
	n.T.Helper()
	for p, err := range n.Nodes.Log.Packs(context.Background(), Key(run), 0, schema.MaxSeq) {
		if err != nil {
			n.T.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				n.T.Fatal(err)
			}
			types = append(types, string(r.Type))
		}
	}
	return types
}

// Eventually waits until something holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	late, look := time.After(30*time.Second), time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("never: %s", what)
		}
	}
}
