package node

import (
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
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema/contracts"
)

var update = flag.Bool("update", false, "write schema/contracts/routes.yaml anew")

// described are the routes beside the native ones, without what stands before them, by protocol: whose tag is first.
var described = []struct {
	tag, page string
	prefixes  []string
	routes    map[string]string
}{
	{"pages", "docs/console.md", []string{""}, map[string]string{
		"GET /":                        "Leads browsers to the console",
		"GET /console":                 "Leads to the console",
		"GET /console/":                "The console, a page to watch runs and steer them",
		"GET /console/{file}":          "A file of the console",
		"GET /console/{folder}/{file}": "A file of the console",
		"GET /openapi.yaml":            "This document",
		"GET /asyncapi.yaml":           "What taps read from NATS",
		"GET /reference":               "This document as a page",
		"GET /reference/style.css":     "The style of that page",
	}},
	{"sessions", "docs/dialects/qoder.md", []string{"/api/v1/cloud/v1", "/api/v1/cloud", "/v1"}, map[string]string{
		"POST /sessions":                                "Create a session",
		"GET /sessions":                                 "List sessions",
		"GET /sessions/{run}":                           "A session",
		"POST /sessions/{run}":                          "Change a session",
		"PATCH /sessions/{run}":                         "Change a session",
		"DELETE /sessions/{run}":                        "Delete a session",
		"POST /sessions/{run}/archive":                  "Archive a session: it takes no more messages",
		"POST /sessions/{run}/cancel":                   "Stop what the agent is doing",
		"POST /sessions/{run}/events":                   "Send events to the agent: messages, answers, interrupts",
		"GET /sessions/{run}/events":                    "Events of a session, page by page; as a stream with Accept: text/event-stream",
		"GET /sessions/{run}/events/stream":             "Events of a session as they happen (server-sent events)",
		"GET /sessions/{run}/threads":                   "The threads of a session: the agent and its sub-agents",
		"GET /sessions/{run}/threads/{thread}":          "A thread",
		"POST /sessions/{run}/threads/{thread}/archive": "Archive a thread",
		"GET /sessions/{run}/threads/{thread}/events":   "Events of a thread, page by page; as a stream with Accept: text/event-stream",
		"GET /sessions/{run}/threads/{thread}/stream":   "Events of a thread as they happen (server-sent events)",
	}},
	{"metis", "docs/dialects/metis.md", []string{"/metis"}, map[string]string{
		"POST /sessions":                                            "Create a session",
		"GET /sessions/{run}":                                       "A session",
		"DELETE /sessions/{run}":                                    "Delete a session",
		"POST /sessions/{run}/turns":                                "Send a message: a turn begins",
		"POST /sessions/{run}/turns/{turn}/cancel":                  "Cancel a turn",
		"POST /sessions/{run}/turns/{turn}/confirmations/{request}": "Allow or deny what a turn asks for",
		"GET /sessions/{run}/messages":                              "Messages of a session",
		"GET /sessions/{run}/events":                                "Events of a session, page by page",
		"GET /sessions/{run}/stream":                                "A session over one WebSocket: a snapshot, then every event",
	}},
	{"threads", "docs/dialects/langchain.md", []string{"/langgraph", ""}, map[string]string{
		"POST /threads":                          "Create a thread",
		"POST /threads/search":                   "Search threads",
		"POST /threads/count":                    "Count threads",
		"GET /threads/{run}":                     "A thread",
		"PATCH /threads/{run}":                   "Change a thread's metadata",
		"DELETE /threads/{run}":                  "Delete a thread",
		"GET /threads/{run}/state":               "The state of a thread",
		"GET /threads/{run}/history":             "Checkpoints of a thread",
		"POST /threads/{run}/history":            "Checkpoints of a thread, filtered",
		"POST /threads/{run}/commands":           "Send a command: start, answer, fork, list children; each takes its own scope",
		"POST /threads/{run}/stream":             "Events of a thread as they happen (server-sent events)",
		"GET /threads/{run}/stream":              "Events of a thread as they happen: server-sent events, or a WebSocket",
		"POST /threads/{run}/stream/events":      "Events of a thread as they happen (server-sent events)",
		"GET /threads/{run}/stream/events":       "Events of a thread, and commands, over one WebSocket",
		"POST /threads/{run}/runs":               "Start a run of a thread",
		"GET /threads/{run}/runs":                "Runs of a thread",
		"POST /threads/{run}/runs/stream":        "Start a run of a thread, and stream it",
		"POST /threads/{run}/runs/wait":          "Start a run of a thread, and wait for its end",
		"GET /threads/{run}/runs/{part}":         "A run of a thread",
		"GET /threads/{run}/runs/{part}/join":    "Wait for the end of a run",
		"GET /threads/{run}/runs/{part}/stream":  "A run as it happens (server-sent events)",
		"POST /threads/{run}/runs/{part}/cancel": "Cancel a run",
		"GET /info":                              "What this server is",
		"POST /assistants/search":                "Search assistants",
		"GET /assistants/{assistant}":            "An assistant",
		"GET /assistants/{assistant}/schemas":    "Schemas of an assistant",
		"GET /assistants/{assistant}/graph":      "The graph of an assistant",
	}},
}

// rpcPrefix is where services of the runtime stand. Their methods are named by what they do.
const rpcPrefix = "/nimi.runtime.v1."

// describe returns the tag, the page and the summary of a route.
func describe(method, path string) (tag, page, summary string) {
	if strings.HasPrefix(path, rpcPrefix) {
		words := regexp.MustCompile("[A-Z][a-z]+").ReplaceAllStringFunc(path[strings.LastIndex(path, "/")+1:], func(w string) string { return strings.ToLower(w) + " " })
		return "runtime", "docs/dialects/runtime.md", strings.ToUpper(words[:1]) + strings.TrimSpace(words[1:]) + " (gRPC)"
	}
	for _, d := range described {
		for _, prefix := range d.prefixes {
			rest, ok := strings.CutPrefix(path, prefix)
			if summary := d.routes[method+" "+rest]; ok && summary != "" {
				return d.tag, d.page, summary
			}
		}
	}
	return "", "", ""
}

// TestRoutesFile: routes.yaml is made of the table of routes and what is said of them above.
func TestRoutesFile(t *testing.T) {
	const file = "../../../../schema/contracts/routes.yaml"
	paths := map[string]map[string]string{}
	for _, rt := range table(t) {
		if strings.HasPrefix(rt.Path, "/v1/agent/") || strings.HasPrefix(rt.Path, "/agent.v1.") || strings.HasPrefix(rt.Path, "/grpc.") || rt.Path == "/healthz" || rt.Path == "/readyz" {
			continue // openapi.yaml has them
		}
		tag, page, summary := describe(rt.Method, rt.Path)
		if summary == "" {
			t.Errorf("%s %s: nothing is said of it", rt.Method, rt.Path)
			continue
		}
		if paths[rt.Path] == nil {
			paths[rt.Path] = map[string]string{}
		}
		var op strings.Builder
		fmt.Fprintf(&op, "    %s:\n      operationId: %s\n      tags: [%s]\n      summary: %q\n      description: 'The protocol is described in %s.'\n",
			strings.ToLower(rt.Method), strings.Trim(regexp.MustCompile("[^A-Za-z0-9]+").ReplaceAllString(strings.ToLower(rt.Method)+rt.Path, "-"), "-"), tag, summary, page)
		op.WriteString("      security: [")
		for i, scope := range rt.Needs.Names() {
			if i > 0 {
				op.WriteString(", ")
			}
			op.WriteString("{bearer: [" + scope + "]}")
		}
		op.WriteString("]\n")
		if parts := strings.Split(rt.Path, "{")[1:]; len(parts) > 0 {
			op.WriteString("      parameters:\n")
			for _, part := range parts {
				name, _, _ := strings.Cut(part, "}")
				fmt.Fprintf(&op, "        - {name: %s, in: path, required: true, schema: {type: string}}\n", name)
			}
		}
		op.WriteString("      responses: {default: {description: 'Answers and refusals are those of the protocol.'}}\n")
		paths[rt.Path][rt.Method] = op.String()
	}
	text := "# Routes beside those of openapi.yaml, which is served with these behind its own. TestRoutesFile of cmd/agentstream/internal/node\n" +
		"# makes this file of the server's table of routes: go test ./cmd/agentstream/internal/node -run TestRoutesFile -update\npaths:\n"
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		text += "  " + path + ":\n"
		for _, method := range slices.Sorted(maps.Keys(paths[path])) {
			text += paths[path][method]
		}
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

// TestOpenAPIHasEveryRoute: the document that is served tells of every route of a node, with the scope that it needs, and of
// no other.
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
	s, err := edge.New(edge.Config{Hub: hub, Blobs: struct{ edge.Blobs }{}, Operator: struct{ edge.Operator }{}, Shares: new(auth.Shares), Appender: app, Pages: pages, Protocols: f.protocols(), Authenticate: open.Authenticate, Still: open.Still, Tickets: tickets})
	if err != nil {
		t.Fatal(err)
	}
	if rows := s.Table(); len(rows) > 60 {
		return rows
	}
	t.Fatal(fmt.Sprint("only ", len(s.Table()), " routes"))
	return nil
}
