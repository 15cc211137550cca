package edge_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// writes are what begins runs and appends events.
func (k *talk) writes(h *spoken) {
	key := []string{"Idempotency-Key", "k1"}
	for range 2 {
		if a := h.ask("POST", edgetest.RunsPath, "", "", `{"planning_gate":"required"}`, key...); a.Status != 201 {
			k.t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	h.ask("POST", edgetest.RunsPath, "", "", `{"planning_gate":"off"}`, key...).Expect(k.t, 422, "KEY-REUSED")
	h.ask("POST", edgetest.RunsPath, "", "", "")
	h.ask("POST", edgetest.RunsPath, "", "", `{"run_id":"ended"}`).Expect(k.t, 409, "RUN-EXISTS")
	h.ask("POST", edgetest.RunsPath, "", "", `{"run_id":"a.b"}`).Expect(k.t, 400, "BAD-ID")
	h.ask("POST", edgetest.RunsPath, "", "", `{"planning_gate":"open"}`).Expect(k.t, 400, "BAD-REQUEST")
	for i, status := range []int{201, 200} {
		if a := h.ask("PUT", edgetest.RunsPath+"/{run}", "put", "", `{"planning_gate":"preview"}`,
			key...); a.Status != status {
			k.t.Errorf("put, time %d: %d %s", i, a.Status, a.Body)
		}
	}
	h.ask("PUT", edgetest.RunsPath+"/{run}", "ended", "", "")
	h.ask("PUT", edgetest.RunsPath+"/{run}", "ended", "", `{"run_id":"put"}`).Expect(k.t, 400, "BAD-REQUEST")
	events := edgetest.RunsPath + "/{run}/events"
	for range 2 {
		if a := h.ask("POST", events, "mine", "", edgetest.GoodLine, key...); a.Status != 200 {
			k.t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	h.ask("POST", events, "mine", "", `{"type":"progress"}`, key...).Expect(k.t, 422, "KEY-REUSED")
	h.ask("POST", events, "mine", "", edgetest.GoodLine, "Idempotency-Key", "").Expect(k.t, 400, "BAD-REQUEST")
	h.ask("POST", events, "mine", "", `{"type":"progress","seq":77}`).Expect(k.t, 409, "SEQ-MISMATCH")
	h.ask("POST", events, "ended", "", `{"type":"progress"}`).Expect(k.t, 409, "RUN-ENDED")
	h.ask("POST", events, "mine", "", edgetest.GoodLine, "If-Match", `"77"`).Expect(k.t, 412, "PRECONDITION-FAILED")
	h.ask("POST", events, "fresh", "", edgetest.GoodLine, "If-Match", "*").Expect(k.t, 412, "PRECONDITION-FAILED")
	h.ask("POST", events, "mine", "", edgetest.GoodLine+"\n"+`{"type":"progress","child_id":"kid"}`,
		"Agentstream-Atomic", "true").Expect(k.t, 413, schema.CodeMalformed)
	h.ask("POST", events, "mine", "", "{\"type\":\"progress\"}\n{\"type\":\"tool.end\",\"payload\":{\"call_id\":\"c\",\"ok\":1}}").Expect(k.t, 400, schema.CodeMalformed)
	h.ask("POST", events, "mine", "", `[{"type":"nonsense"}]`).Expect(k.t, 400, schema.CodeUnknownType)
}

// publishes sends lines of several runs.
func (k *talk) publishes(h *spoken) {
	ask := func(h *spoken, body string, headers ...string) edgetest.Reply {
		return h.ask("POST", edgetest.PublishPath, "", "", body, headers...)
	}
	if a := ask(h, edgetest.LineOf("mine", "")+"\n"+edgetest.LineOf("ended", "")); a.Status != 200 ||
		strings.Count(a.Body, "\n") != 2 {
		k.t.Errorf("%d %s", a.Status, a.Body)
	}
	for who, status := range map[string]int{"": 101, "nobody": 401, "reader": 403, "one run": 404} {
		a := h.Raw("GET " + edgetest.PublishPath +
			" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
			"Sec-WebSocket-Protocol: koder-agent-stream-v1\r\nSec-WebSocket-Version: 13\r\n" + edgetest.TenantHeader +
			": " + who + "\r\n\r\n")
		if k.heard(exchange{"GET", edgetest.PublishPath, a}); a.Status != status {
			k.t.Errorf("%q: %d", who, a.Status)
		}
	}
	ask(h, "\n").Expect(k.t, 400, schema.CodeMalformed)
	ask(h, edgetest.LineOf("mine", ""), "Idempotency-Key", "").Expect(k.t, 400, "BAD-REQUEST")
	ask(h, edgetest.LineOf("mine", ""), edgetest.TenantHeader, "one run").Expect(k.t, 404, "NOT-FOUND")
	ask(h, "x", "Content-Type", "text/html").Expect(k.t, 415, "UNSUPPORTED-MEDIA-TYPE")
	ask(h, "x", "Content-Encoding", "br").Expect(k.t, 415, "UNSUPPORTED-MEDIA-TYPE")
	small := k.house(func(c *edge.Config) {
		c.MaxBodyBytes, c.MaxBlobBytes, c.MaxStreams, c.IngestLimit.Requests, c.BodyTimeout = 200, 200, 1, 1, 20*time.Millisecond
	})
	ask(small, strings.Repeat(" ", 201)).Expect(k.t, 413, schema.CodeMalformed)
	send := func(length int64, headers ...string) edgetest.Reply {
		r, w := io.Pipe()
		req := small.Request("POST", edgetest.PublishPath, "", headers...)
		req.Body, req.ContentLength = r, length
		resp, err := small.Client.Do(req)
		if err != nil {
			k.t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		_ = w.Close()
		if err != nil {
			k.t.Fatal(err)
		}
		a := edgetest.Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(b), Last: resp.Close}
		k.heard(exchange{"POST", edgetest.PublishPath, a})
		return a
	}
	send(10).Expect(k.t, 408, "REQUEST-TIMEOUT")
	small.Publish(small.Client) // takes the one place
	send(-1).Expect(k.t, 503, "BUSY")
	once := k.house(func(c *edge.Config) { c.IngestLimit.Events = 1 })
	ask(once, edgetest.LineOf("mine", ""))
	ask(once, edgetest.LineOf("mine", "")).Expect(k.t, 429, "RATE-LIMITED")
}

// large is what is kept beside events.
func (k *talk) large(h *spoken) {
	put, get := edgetest.RunsPath+"/{run}/blobs", edgetest.RunsPath+"/{run}/blobs/{ref}"
	h.ask("GET", get, "ended", "", "").Expect(k.t, 404, "NOT-FOUND")
	for _, status := range []int{201, 200} {
		if a := h.ask("PUT", put, "ended", "", ""); a.Status != status {
			k.t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	h.ask("PUT", put, "ended", "", "x", "Content-Type", "none at all").Expect(k.t, 400, "BAD-REQUEST")
	for _, tag := range []string{"", `"` + edgetest.RefOf("") + `"`} {
		if a := h.ask("GET", get, "ended", "", "", "If-None-Match", tag); a.Status != 200 && tag == "" ||
			a.Status != 304 && tag != "" {
			k.t.Errorf("%q: %d %s", tag, a.Status, a.Body)
		}
	}
	tight := k.house(func(c *edge.Config) { c.MaxBodyBytes, c.BodyMemory, c.BodyWait = 200, 128<<10, time.Millisecond })
	tight.store("run", schematest.ByName("plain"), 5)
	c := edgetest.StallBlob(k.t, tight.House, "run", 1<<20, 10)
	edgetest.Eventually(k.t, "what stalls takes the room", func() bool {
		return tight.Do("GET", strings.NewReplacer("{run}", "run", "{ref}", edgetest.RefOf("")).Replace(get),
			"").Status == 429
	})
	tight.ask("GET", get, "run", "", "").Expect(k.t, 429, "RATE-LIMITED")
	c.Close()
}

// updates changes what a run is found by.
func (k *talk) updates(h *spoken) {
	const path, body = edgetest.RunsPath + "/{run}/update", `{"title":"Found"}`
	for _, status := range []int{202, 200} {
		if a := h.ask("POST", path, "ended", "", body, "Idempotency-Key", "named"); a.Status != status {
			k.t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	h.ask("POST", path, "ended", "", body, "If-Match", `"77"`).Expect(k.t, 412, "PRECONDITION-FAILED")
	h.ask("POST", path, "ended", "", `{"title":"Other"}`, "Idempotency-Key", "named").Expect(k.t, 422, "KEY-REUSED")
	h.ask("POST", path, "ended", "", `[]`).Expect(k.t, 400, "BAD-REQUEST")
}

// commands sends each command to runs in states that take it and in states that refuse it.
func (k *talk) commands(h *spoken) {
	k.updates(h)
	n := 0
	for name, body := range edgetest.Bodies {
		path := edgetest.RunsPath + "/{run}/" + name
		taken := slices.IndexFunc(edgetest.Situations, func(s edgetest.Situation) bool {
			return slices.Contains(strings.Fields(s.Takes), name)
		})
		n++
		run := fmt.Sprintf("told_%d", n)
		h.Tell(run, edgetest.Situations[taken].Lines...)
		for _, status := range []int{202, 200} {
			if a := h.ask("POST", path, run, "", body, "Idempotency-Key", "k"); a.Status != status {
				k.t.Errorf("%s: %d %s", name, a.Status, a.Body)
			}
		}
		h.ask("POST", path, run, "", body, "If-Match", `"77"`).Expect(k.t, 412, "PRECONDITION-FAILED")
		other := `{"request_id":"q1","content":"other","plan_id":"p1","more":true}`
		h.ask("POST", path, run, "", other, "Idempotency-Key", "k").Expect(k.t, 422, "KEY-REUSED")
		h.ask("POST", path, run, "", `[]`).Expect(k.t, 400, "BAD-REQUEST")
		h.ask("POST", path, run, "", `{"child_id":"`+run+`","request_id":"q1","content":"x"}`).Expect(k.t, 400,
			schema.CodeMalformed)
		if name == "messages" {
			h.Tell("kids", edgetest.ChildSpeaks, edgetest.Lifecycle("done"))
			h.ask("POST", path, "kids", "", `{"child_id":"kid","content":"x"}`).Expect(k.t, 409, "RUN-ENDED")
			continue
		}
		h.ask("POST", path, "ended", "", body).Expect(k.t, 409, "STATE-FORBIDS")
	}
}
