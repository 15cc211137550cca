package edge_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"agentstream/edge"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// writes are what begins runs and appends events.
func (k *talk) writes(h *spoken) {
	key := []string{"Idempotency-Key", "k1"}
	for range 2 {
		if a := h.ask("POST", runsPath, "", "", `{"planning_gate":"required"}`, key...); a.status != 201 {
			k.t.Errorf("%d %s", a.status, a.body)
		}
	}
	h.ask("POST", runsPath, "", "", `{"planning_gate":"off"}`, key...).expect(k.t, 422, "KEY-REUSED")
	h.ask("POST", runsPath, "", "", "")
	h.ask("POST", runsPath, "", "", `{"run_id":"ended"}`).expect(k.t, 409, "RUN-EXISTS")
	h.ask("POST", runsPath, "", "", `{"run_id":"a.b"}`).expect(k.t, 400, "BAD-ID")
	h.ask("POST", runsPath, "", "", `{"planning_gate":"open"}`).expect(k.t, 400, "BAD-REQUEST")
	for i, status := range []int{201, 200} {
		if a := h.ask("PUT", runsPath+"/{run}", "put", "", `{"planning_gate":"preview"}`, key...); a.status != status {
			k.t.Errorf("put, time %d: %d %s", i, a.status, a.body)
		}
	}
	h.ask("PUT", runsPath+"/{run}", "ended", "", "")
	h.ask("PUT", runsPath+"/{run}", "ended", "", `{"run_id":"put"}`).expect(k.t, 400, "BAD-REQUEST")
	events := runsPath + "/{run}/events"
	for range 2 {
		if a := h.ask("POST", events, "mine", "", good, key...); a.status != 200 {
			k.t.Errorf("%d %s", a.status, a.body)
		}
	}
	h.ask("POST", events, "mine", "", `{"type":"progress"}`, key...).expect(k.t, 422, "KEY-REUSED")
	h.ask("POST", events, "mine", "", good, "Idempotency-Key", "").expect(k.t, 400, "BAD-REQUEST")
	h.ask("POST", events, "mine", "", `{"type":"progress","seq":77}`).expect(k.t, 409, "SEQ-MISMATCH")
	h.ask("POST", events, "ended", "", `{"type":"progress"}`).expect(k.t, 409, "RUN-ENDED")
	h.ask("POST", events, "mine", "", good, "If-Match", `"77"`).expect(k.t, 412, "PRECONDITION-FAILED")
	h.ask("POST", events, "fresh", "", good, "If-Match", "*").expect(k.t, 412, "PRECONDITION-FAILED")
	h.ask("POST", events, "mine", "", good+"\n"+`{"type":"progress","child_id":"kid"}`, "Agentstream-Atomic", "true").expect(k.t, 413, schema.CodeMalformed)
	h.ask("POST", events, "mine", "", "{\"type\":\"progress\"}\n{\"type\":\"tool.end\",\"payload\":{\"call_id\":\"c\",\"ok\":1}}").expect(k.t, 400, schema.CodeMalformed)
	h.ask("POST", events, "mine", "", `[{"type":"nonsense"}]`).expect(k.t, 400, schema.CodeUnknownType)
}

// publishes sends lines of several runs.
func (k *talk) publishes(h *spoken) {
	ask := func(h *spoken, body string, headers ...string) answer {
		return h.ask("POST", publishPath, "", "", body, headers...)
	}
	if a := ask(h, lineOf("mine", "")+"\n"+lineOf("ended", "")); a.status != 200 || strings.Count(a.body, "\n") != 2 {
		k.t.Errorf("%d %s", a.status, a.body)
	}
	for who, status := range map[string]int{"": 101, "nobody": 401, "reader": 403, "one run": 404} {
		a := h.raw("GET " + publishPath + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
			"Sec-WebSocket-Protocol: koder-agent-stream-v1\r\nSec-WebSocket-Version: 13\r\n" + tenantHeader + ": " + who + "\r\n\r\n")
		if k.heard(exchange{"GET", publishPath, a}); a.status != status {
			k.t.Errorf("%q: %d", who, a.status)
		}
	}
	ask(h, "\n").expect(k.t, 400, schema.CodeMalformed)
	ask(h, lineOf("mine", ""), "Idempotency-Key", "").expect(k.t, 400, "BAD-REQUEST")
	ask(h, lineOf("mine", ""), tenantHeader, "one run").expect(k.t, 404, "NOT-FOUND")
	ask(h, "x", "Content-Type", "text/html").expect(k.t, 415, "UNSUPPORTED-MEDIA-TYPE")
	ask(h, "x", "Content-Encoding", "br").expect(k.t, 415, "UNSUPPORTED-MEDIA-TYPE")
	small := k.house(func(c *edge.Config) {
		c.MaxBodyBytes, c.MaxBlobBytes, c.MaxStreams, c.IngestLimit.Requests, c.BodyTimeout = 200, 200, 1, 1, 20*time.Millisecond
	})
	ask(small, strings.Repeat(" ", 201)).expect(k.t, 413, schema.CodeMalformed)
	send := func(length int64, headers ...string) answer {
		r, w := io.Pipe()
		req := small.request("POST", publishPath, "", headers...)
		req.Body, req.ContentLength = r, length
		resp, err := small.client.Do(req)
		if err != nil {
			k.t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		_ = w.Close()
		if err != nil {
			k.t.Fatal(err)
		}
		a := answer{resp.StatusCode, resp.Header, string(b), resp.Close}
		k.heard(exchange{"POST", publishPath, a})
		return a
	}
	send(10).expect(k.t, 408, "REQUEST-TIMEOUT")
	small.publish(small.client) // takes the one place
	send(-1).expect(k.t, 503, "BUSY")
	once := k.house(func(c *edge.Config) { c.IngestLimit.Events = 1 })
	ask(once, lineOf("mine", ""))
	ask(once, lineOf("mine", "")).expect(k.t, 429, "RATE-LIMITED")
}

// large is what is kept beside events.
func (k *talk) large(h *spoken) {
	put, get := runsPath+"/{run}/blobs", runsPath+"/{run}/blobs/{ref}"
	h.ask("GET", get, "ended", "", "").expect(k.t, 404, "NOT-FOUND")
	for _, status := range []int{201, 200} {
		if a := h.ask("PUT", put, "ended", "", ""); a.status != status {
			k.t.Errorf("%d %s", a.status, a.body)
		}
	}
	h.ask("PUT", put, "ended", "", "x", "Content-Type", "none at all").expect(k.t, 400, "BAD-REQUEST")
	for _, tag := range []string{"", `"` + refOf("") + `"`} {
		if a := h.ask("GET", get, "ended", "", "", "If-None-Match", tag); a.status != 200 && tag == "" || a.status != 304 && tag != "" {
			k.t.Errorf("%q: %d %s", tag, a.status, a.body)
		}
	}
	tight := k.house(func(c *edge.Config) { c.MaxBodyBytes, c.BodyMemory, c.BodyWait = 200, 128<<10, time.Millisecond })
	tight.store("run", schematest.Named("plain"), 5)
	c := stallBlob(k.t, tight.house, "run", 1<<20, 10)
	eventually(k.t, "what stalls takes the room", func() bool {
		return tight.do("GET", strings.NewReplacer("{run}", "run", "{ref}", refOf("")).Replace(get), "").status == 429
	})
	tight.ask("GET", get, "run", "", "").expect(k.t, 429, "RATE-LIMITED")
	c.Close()
}

// commands sends each command to runs in states that take it and in states that refuse it.
func (k *talk) commands(h *spoken) {
	n := 0
	for name, body := range bodies {
		path := runsPath + "/{run}/" + name
		taken := slices.IndexFunc(situations, func(s struct {
			name  string
			lines []string
			takes string
		}) bool {
			return slices.Contains(strings.Fields(s.takes), name)
		})
		n++
		run := fmt.Sprintf("told_%d", n)
		h.tell(run, situations[taken].lines...)
		for _, status := range []int{202, 200} {
			if a := h.ask("POST", path, run, "", body, "Idempotency-Key", "k"); a.status != status {
				k.t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
		h.ask("POST", path, run, "", body, "If-Match", `"77"`).expect(k.t, 412, "PRECONDITION-FAILED")
		other := `{"request_id":"q1","content":"other","plan_id":"p1","more":true}`
		h.ask("POST", path, run, "", other, "Idempotency-Key", "k").expect(k.t, 422, "KEY-REUSED")
		h.ask("POST", path, run, "", `[]`).expect(k.t, 400, "BAD-REQUEST")
		h.ask("POST", path, run, "", `{"child_id":"`+run+`","request_id":"q1","content":"x"}`).expect(k.t, 400, schema.CodeMalformed)
		if name == "messages" {
			h.tell("kids", childSpeaks, lifecycle("done"))
			h.ask("POST", path, "kids", "", `{"child_id":"kid","content":"x"}`).expect(k.t, 409, "RUN-ENDED")
			continue
		}
		h.ask("POST", path, "ended", "", body).expect(k.t, 409, "STATE-FORBIDS")
	}
}
