package proxy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"agentstream/adapters/proxy"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// TestSinkKeepsNothing: bytes that were sent are their owner's again, also when Send did not wait until
// they were stored.
func TestSinkKeepsNothing(t *testing.T) {
	log, err := natsjs.Open(t.Context(), testkit.NATS(t).Conn)
	if err != nil {
		t.Fatal(err)
	}
	gate := &gated{Log: log, open: make(chan struct{})}
	key := schema.RunKey{Tenant: "acme", Run: "run_kept"}
	sink, err := proxy.Publishers(producers.Config{Log: gate})(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	payload, extra := []byte(`{"text":"mine"}`), []byte(`"more":"mine"`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sink.Send(ctx, schema.Event{Type: schema.TypeTextDelta, Payload: payload,
		Extra: extra}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	copy(payload[9:], "gone")
	copy(extra[8:], "gone")
	close(gate.open)
	if err := sink.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var stored strings.Builder
	for p, err := range log.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		stored.Write(p.Body)
	}
	if s := stored.String(); strings.Count(s, "mine") != 2 || strings.Contains(s, "gone") {
		t.Errorf("stored: %s", s)
	}
}
