package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"agentstream/edge/edgetest"
	"agentstream/schema"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// ways are how events come in, each with a traceparent. Each writes one event of type progress into the run, except for
// a command.
var ways = map[string]func(t *testing.T, h *edgetest.House, run, trace string){
	"post": func(t *testing.T, h *edgetest.House, run, trace string) {
		h.Must(run, "progress", `{"message":"a"}`, "traceparent", trace)
	},
	"batch of lines": func(t *testing.T, h *edgetest.House, run, trace string) {
		a := h.Do("POST", edgetest.PublishPath, progressOf(run)+"\n", "traceparent", trace)
		if a.Status != http.StatusOK {
			t.Fatal(a)
		}
	},
	"stream of lines": func(t *testing.T, h *edgetest.House, run, trace string) {
		p := h.Publish(http.DefaultClient, "traceparent", trace)
		sendLines(p, progressOf(run))
		if r := nextReceipt(p); r.Error != nil {
			t.Fatal(r)
		}
		p.W.Close()
	},
	"WebSocket": func(t *testing.T, h *edgetest.House, run, trace string) {
		k := h.MustTap("ws", edgetest.PublishPath, 0, "traceparent", trace)
		k.Send(edgetest.ClientFrame(0x81, progressOf(run)))
		receipts(k, 1)
	},
	"gRPC": func(t *testing.T, h *edgetest.House, run, trace string) {
		conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", trace)
		s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
			"/agent.v1.AgentIngest/Publish", grpc.ForceCodec(edgetest.RawCodec{}))
		if err != nil {
			t.Fatal(err)
		}
		b := publishRequest(run, "progress", `{"message":"a"}`, "")
		if err := s.SendMsg(&b); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&b); err != nil {
			t.Fatal(err)
		}
	},
	"command": func(t *testing.T, h *edgetest.House, run, trace string) {
		h.Must(run, "run.lifecycle", `{"state":"running"}`)
		if a := orderOnce(h, run, "messages", `{"content":"hello"}`, "traceparent", trace); a.Status != http.StatusAccepted {
			t.Fatal(a)
		}
	},
}

func progressOf(run string) string {
	return fmt.Sprintf(`{"run_id":%q,"type":"progress","payload":{"message":"a"}}`, run)
}

// Each way in keeps the traceparent of its request with the event; what is none by the rules of the W3C is ignored, and
// nothing is refused for its sake.
func TestTraceOfEachWayIn(t *testing.T) {
	h := edgetest.NewHouse(t)
	n := 0
	for name, send := range ways {
		for trace, want := range map[string]string{
			parent:                             parent,
			"01" + parent[2:] + "-of-tomorrow": parent,
			parent[:53] + "00":                 parent[:53] + "00",
			strings.ToUpper(parent):            "",
			"00-" + strings.Repeat("0", 32) + parent[35:]: "",
			parent + `","x":"`:                            "",
			strings.Repeat("0", 16<<10):                   "",
		} {
			n++
			run := fmt.Sprint("run_", n)
			send(t, h, run, trace)
			all := storedEvents(h, run)
			e := all[len(all)-1]
			if got := e.Trace(); got != want {
				t.Errorf("%s, %.80s: %q is kept, want %q", name, trace, got, want)
			}
			if want == "" && len(e.Extra) > 0 {
				t.Errorf("%s, %.80s: kept %s", name, trace, e.Extra)
			}
		}
	}
}

// Deltas have none, an event's own one stays, a repeat under another trace stores nothing, and what says nothing stores
// the same line as ever.
func TestTraceOfEvents(t *testing.T) {
	h := edgetest.NewHouse(t)
	own := `"00-11111111111111111111111111111111-2222222222222222-00"`
	h.Must("run", "progress", `{"message":"a"}`, "traceparent", parent)
	body := `{"type":"text.delta","payload":{"text":"a"}}` + "\n" + `{"type":"progress","trace":` + own + `,"payload":{}}` +
		"\n" + `{"type":"progress","trace":{"mine":1},"payload":{}}` + "\n" + `{"type":"progress","x":1,"payload":{}}`
	for _, trace := range []string{parent, strings.Replace(parent, "b7", "b8", 1)} {
		if a := h.Do("POST", "/v1/agent/runs/run/events", body, "traceparent", trace, "Idempotency-Key", "k"); a.Status != 200 {
			t.Fatal(a)
		}
	}
	h.Must("run", "progress", `{"message":"a"}`)
	var got []string
	for _, e := range storedEvents(h, "run") {
		got = append(got, string(e.Extra))
	}
	kept := `"trace":"` + parent + `"`
	want := []string{kept, "", `"trace":` + own, `"trace":{"mine":1}`, `"x":1,` + kept, ""}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
	large := `{"message":"` + strings.Repeat("x", schema.MaxEventBytes-560) + `"}`
	h.Must("large", "progress", large, "traceparent", parent)
	if e := storedEvents(h, "large")[0]; len(e.Extra) > 0 {
		t.Errorf("an event that has no room has %s", e.Extra)
	}
}

// Those who watch in the native form see the field as any that they do not know: as it is in JSON, in extra over gRPC.
func TestTraceIsShown(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Must("run", "progress", `{"message":"a"}`, "traceparent", parent)
	want := `"trace":"` + parent + `"`
	for _, carrier := range []string{"sse", "ws"} {
		k := h.MustTap(carrier, "/v1/agent/runs/run/stream", 0)
		if text, err := k.Event(); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %s, %v", carrier, text, err)
		}
	}
}
