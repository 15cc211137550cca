package live_test

import (
	"fmt"
	"strings"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// awaitParked waits until so many subscriptions are.
func awaitParked(h *edgetest.House, n int) {
	h.T.Helper()
	edgetest.Eventually(h.T, fmt.Sprintf("%d subscriptions are parked", n),
		func() bool { return h.Server.Census().Parked == n })
}

func TestConversation(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.Talking)
	progress := `{"type":"progress","payload":{"done":1}}`
	h.Tell("run", edgetest.Lifecycle("running"), progress)
	k := h.Talk()
	if m := k.Ask(nil, `{"do":"ping","id":"x"}`); m.Re != "ping" || m.ID != "x" {
		t.Fatalf("%+v", m)
	}
	if m := k.Ask(nil, `{"do":"subscribe","id":"a","run":"run"}`); m.Re != "subscribe" || m.At != 0 {
		t.Fatalf("%+v", m)
	}
	for i := range schema.Seq(2) {
		if m := k.Next(); m.On != "a" || m.Seq != i+1 {
			t.Fatalf("event %d: %s", i, m.Raw)
		}
	}
	if m := k.Ask(nil, `{"do":"subscribe","id":"b","run":"run","after":1}`); m.Re != "subscribe" || m.At != 1 {
		t.Fatalf("%+v", m)
	}
	if m := k.Next(); m.On != "b" || m.Seq != 2 {
		t.Fatalf("%s", m.Raw)
	}
	awaitParked(h, 2)
	got := map[string]schema.Seq{}
	k.Say(`{"do":"say","run":"run","text":"hi"}`)
	for len(got) < 3 {
		m := k.Next()
		got[m.On+m.Re] = max(m.Seq, m.At)
	}
	if got["a"] != 3 || got["b"] != 3 || got["say"] != 3 {
		t.Fatalf("%v", got)
	}
	if m := k.Ask(nil, `{"do":"unsubscribe","id":"a"}`); m.Re != "unsubscribe" || m.At != 3 {
		t.Fatalf("%+v", m)
	}
	h.Tell("run", progress)
	if m := k.Next(); m.On != "b" || m.Seq != 4 {
		t.Fatalf("%s", m.Raw)
	}
	if m := k.Ask(nil, `{"do":"change","id":"b","run":"run","types":["%s"]}`,
		schema.TypeRunLifecycle); m.Re != "change" || m.At != 4 {
		t.Fatalf("%+v", m)
	}
	h.Tell("run", progress)
	h.Tell("run", edgetest.Lifecycle("done"))
	if m := k.Next(); m.On != "b" || m.Seq != 6 {
		t.Fatalf("%s", m.Raw)
	}
	if m := k.Next(); m.Re != "ended" || m.ID != "b" {
		t.Fatalf("%s", m.Raw)
	}
	k.Say(`{"do":"bye"}`)
	if _, ce := k.Wait(t); ce.Code != 1000 || string(ce.Reason) != "bye" {
		t.Fatalf("%d %s", ce.Code, ce.Reason)
	}
	h.Vacant()
	if logs := h.Logs.String(); !strings.Contains(logs, `"route":"GET /talk/{room}","status":101`) ||
		!strings.Contains(logs, `"dialect":"sample","transport":"ws"`) || strings.Contains(logs, "ERROR") {
		t.Error(logs)
	}
}
