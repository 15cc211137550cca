package edge_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
)

// letterbox is an operator with the dead letters of two tenants, by id.
type letterbox struct {
	tenants map[string]string
	err     error
}

func (o *letterbox) Storage(_ context.Context, tenant string) edge.Storage {
	at, messages, seconds := time.Unix(0, 0).UTC(), uint64(2), 1.5
	return edge.Storage{
		Partitions: []edge.Partition{{Stream: "AGENT_0", State: "active", LagMessages: &messages, LagSeconds: &seconds,
			LagAt: &at}},
		Losses: []edge.Loss{{RunID: "run_of_" + tenant, Reason: "dropped", Text: "lost", Found: at, Open: true}},
	}
}

func (o *letterbox) DeadLetters(_ context.Context, tenant string, _ int) (out []edge.DeadLetter, all int, err error) {
	for id, whose := range o.tenants {
		if whose == tenant {
			out, all = append(out, edge.DeadLetter{ID: id, Reason: "conflict"}), all+1
		}
	}
	return out, all, o.err
}

func (o *letterbox) Retry(_ context.Context, tenant, id string) (string, bool, error) {
	return "still in conflict", o.tenants[id] == tenant, o.err
}

func (o *letterbox) Drop(_ context.Context, tenant, id string) (bool, error) {
	if o.err != nil || o.tenants[id] != tenant {
		return false, o.err
	}
	delete(o.tenants, id)
	return true, nil
}

const (
	letters   = "/v1/agent/deadletters"
	letterOf  = letters + "/{id}"
	retryOf   = letterOf + "/retry"
	operation = "/v1/agent/operations"
)

// operates asks the routes of operators.
func (k *talk) operates() {
	box := &letterbox{tenants: map[string]string{"mine": "acme", "theirs": "rival"}}
	h := k.house(func(c *edge.Config) { c.Operator, c.Version = box, "v1" })
	on := func(method, path, id string) edgetest.Reply {
		a := h.Do(method, strings.Replace(path, "{id}", id, 1), "")
		k.heard(exchange{method, path, a})
		return a
	}
	if a := on("GET", operation, ""); a.Status != 200 || !strings.Contains(a.Body, `"version":"v1"`) ||
		!strings.Contains(a.Body, `"lag_messages":2`) || !strings.Contains(a.Body, `"run_id":"run_of_acme"`) {
		k.t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := on("GET", letters, ""); !strings.Contains(a.Body, `"id":"mine"`) || strings.Contains(a.Body, "theirs") ||
		!strings.Contains(a.Body, `"all":1`) {
		k.t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := on("POST", retryOf, "mine"); a.Body != `{"stored":false,"error":"still in conflict"}`+"\n" {
		k.t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, id := range []string{"theirs", "none"} {
		on("POST", retryOf, id).Expect(k.t, 404, "NOT-FOUND")
		on("DELETE", letterOf, id).Expect(k.t, 404, "NOT-FOUND")
	}
	box.err = errors.New("test: away")
	on("GET", letters, "").Expect(k.t, 503, "UNAVAILABLE")
	on("POST", retryOf, "mine").Expect(k.t, 503, "UNAVAILABLE")
	on("DELETE", letterOf, "mine").Expect(k.t, 503, "UNAVAILABLE")
	box.err = nil
	if a := on("DELETE", letterOf, "mine"); a.Status != 200 || len(box.tenants) != 1 {
		k.t.Errorf("%d %s, left %v", a.Status, a.Body, box.tenants)
	}
	h = k.house()
	on("GET", letters, "").Expect(k.t, 501, "NO-CATALOG")
	on("POST", retryOf, "mine").Expect(k.t, 501, "NO-CATALOG")
	on("DELETE", letterOf, "mine").Expect(k.t, 501, "NO-CATALOG")
}
