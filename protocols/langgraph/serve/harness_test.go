package serve_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/protocols/langgraph/serve"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tenant = edgetest.Tenant
	as     = edgetest.As
)

// node is a running server.
type node struct{ *edgetest.Node }

// answer is a response that was read whole.
type answer struct{ edgetest.Answer }

// object is a JSON object that was read.
type object = edgetest.Object

var (
	event      = edgetest.Event
	eventually = edgetest.Eventually
)

// byKey lets in who has the secret as a bearer token.
func byKey(r *http.Request) (auth.Caller, error) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		return auth.Caller{}, auth.ErrUnauthorized
	}
	return auth.Caller{Tenant: tenant, Scopes: auth.ScopeAll}, nil
}

// start makes a node over a log of its own.
func start(t testing.TB, cfg serve.Config, change ...func(*edge.Config)) *node {
	t.Helper()
	return join(t, edgetest.Share(), cfg, change...)
}

// join makes another node over the same log.
func join(t testing.TB, all *edgetest.Nodes, cfg serve.Config, change ...func(*edge.Config)) *node {
	t.Helper()
	return &node{all.Start(t, serve.Protocol(cfg), change...)}
}

// do asks; headers are name, value, name, value …
func (n *node) do(method, path, body string, headers ...string) answer {
	n.T.Helper()
	return answer{n.Do(method, path, body, headers...)}
}

// refused holds that a request was refused in the protocol's form.
func (a answer) refused(status int, code string) {
	a.T.Helper()
	var o struct{ Error, Message string }
	if err := json.Unmarshal([]byte(a.Body), &o); err != nil || a.Status != status || o.Error != code || o.Message == "" {
		a.T.Errorf("%s: %d, want %d %s: %s", a.Asked, a.Status, status, code, a.Body)
	}
}

// log reads a log in short, as langgraphtest.AllChannels is written.
func log(text string) []schema.Event {
	events := schematest.Short(text).Events
	for i := range events {
		events[i].Path = nil // the log knows it
	}
	return events
}
