package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"agentstream/persister/persistertest"
	"agentstream/persister/retention"
	"agentstream/schema"
)

// TestSessionDeletedAtTheEdge: a session that was deleted is, after the next pass, a run that never was on native
// routes as well, whether its run has ended and whether the log still has it. A hold keeps it.
func TestSessionDeletedAtTheEdge(t *testing.T) { bothHouses(t, sessionDeletedAtTheEdge) }

func sessionDeletedAtTheEdge(h *keptHouse) {
	for _, run := range []string{"doomed", "doomed_2", "held"} {
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: run},
			time.Now().UTC().AddDate(0, 0, -1).Format("20060102"))
		packs := []schema.Pack{w.Pack("", persistertest.Event(schema.TypeSessionCreated, `{"title":"secret"}`),
			persistertest.Lifecycle(schema.StateRunning)),
			w.Pack("", persistertest.Event(schema.TypeSessionDeleted, `{}`))}
		if run != "doomed_2" { // that one goes on, and only the archive has it
			packs = append(packs, w.Pack("", persistertest.Lifecycle(schema.StateDone)))
			h.logged(packs...)
		}
		h.stored(packs...)
		if status, body := h.do(http.MethodGet, "/"+run+"/snapshot", ""); status != 200 {
			h.Fatalf("%s before the pass: %d %s", run, status, body)
		}
	}
	if _, err := h.store.AddHold(h.Context(), schema.RunKey{Tenant: "acme", Run: "held"}, "case"); err != nil {
		h.Fatal(err)
	}
	if r := h.keep(time.Second, retention.Policy{}); r.Deleted != 2 || r.Messages != 3 {
		h.Fatalf("%+v", r)
	}
	for _, run := range []string{"doomed", "doomed_2"} {
		for _, path := range []string{"", "/stream", "/events", "/replay.jsonl", "/snapshot"} {
			status, body := h.do(http.MethodGet, "/"+run+path, "", "X-Request-Id", "same")
			never, want := h.do(http.MethodGet, "/never_was"+path, "", "X-Request-Id", "same")
			if status != 404 || never != status || withoutID(body) != withoutID(want) {
				h.Errorf("%s%s: %d %s\nnever was: %d %s", run, path, status, body, never, want)
			}
		}
	}
	if status, body := h.do(http.MethodGet, "/held/snapshot", ""); status != 200 {
		h.Errorf("held: %d %s", status, body)
	}
	if status, body := h.do(http.MethodGet, "?limit=10", ""); status != 200 || strings.Contains(body, "doomed") ||
		!strings.Contains(body, `"held"`) {
		h.Errorf("%d %s", status, body)
	}
}
