package edge_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/edge/ends"
	"agentstream/schema"
)

// keptTaps have a place for each name but "none"; "full" is one too many, and the cursor "x" is none.
type keptTaps struct{ stillTaps }

func (keptTaps) Place(_ context.Context, _, name string) (string, error) {
	return map[bool]string{true: "", false: "AQ4Tf3cIAQI"}[name == "none"], nil
}

func (keptTaps) Keep(_ context.Context, _, name, cursor string) error {
	switch {
	case cursor == "x":
		return schema.ErrBadCursor
	case name == "full":
		return ends.ErrLimited
	}
	return nil
}

func (keptTaps) Forget(_ context.Context, _, name string) (bool, error) { return name != "none", nil }

// taps are the routes of all runs of a tenant.
func (k *talk) taps() {
	const stream, place = edgetest.PublishPath + "/stream", "/v1/agent/taps/{tap}"
	h := k.house(func(c *edge.Config) { c.Taps, c.MaxBodyBytes, c.BodyTimeout = keptTaps{}, 200, 20*time.Millisecond })
	form := []string{"Content-Type", "application/json"}
	named := func(method, name, body string, want int, code string, headers ...string) {
		k.t.Helper()
		a := h.Do(method, "/v1/agent/taps/"+name, body, headers...)
		k.heard(exchange{method, place, a})
		if code == "" {
			if a.Status != want {
				k.t.Errorf("%s %s: %d %s", method, name, a.Status, a.Body)
			}
			return
		}
		a.Expect(k.t, want, code)
	}
	for _, method := range []string{"GET", "DELETE"} {
		named(method, "bill", "", 200, "")
		named(method, "none", "", 404, "NOT-FOUND")
		named(method, "a.b", "", 400, "BAD-REQUEST")
	}
	named("POST", "bill", `{"cursor":"AQ4Tf3cIAQI"}`, 200, "", form...)
	named("POST", "bill", `{"cursor":"x"}`, 400, "BAD-CURSOR", form...)
	named("POST", "bill", `{}`, 400, "BAD-REQUEST", form...)
	named("POST", "full", `{"cursor":"y"}`, 429, "RATE-LIMITED", form...)
	named("POST", "bill", strings.Repeat(" ", 201), 413, schema.CodeMalformed, form...)
	named("POST", "bill", "x", 415, "UNSUPPORTED-MEDIA-TYPE", "Content-Type", "text/html")
	none := k.house(func(c *edge.Config) { c.Taps = nil })
	for _, ask := range []string{"GET " + stream, "GET " + place, "DELETE " + place, "POST " + place} {
		method, path, _ := strings.Cut(ask, " ")
		body := map[bool]string{true: `{"cursor":"y"}`}[method == "POST"]
		none.ask(method, path, "run", "", body, form...).Expect(k.t, 501, "NO-CATALOG")
	}
	h.ask("GET", stream, "", "?cursor=x&tap=bill", "").Expect(k.t, 400, "BAD-CURSOR")
	h.ask("GET", stream, "", "?from=yesterday", "").Expect(k.t, 400, "BAD-REQUEST")
	k.openTaps(h, stream)
	tight := k.house(func(c *edge.Config) { c.Taps, c.MaxStreams = keptTaps{}, 1 })
	k.open(tight, stream)
	tight.ask("GET", stream, "", "", "").Expect(k.t, 503, "BUSY")
	k.slowBody(h, place)
}

// openTaps opens as many taps as a tenant may, and one more; and WebSockets of two versions.
func (k *talk) openTaps(h *spoken, stream string) {
	k.t.Helper()
	for range 8 {
		k.open(h, stream)
	}
	h.ask("GET", stream, "", "", "").Expect(k.t, 429, "RATE-LIMITED")
	for version, status := range map[string]int{"13": 101, "12": 426} {
		a := k.open(h, stream, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", version,
			"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		if a.Status != status {
			k.t.Errorf("version %s: %d", version, a.Status)
		}
	}
}

// open asks for a stream, and reads the beginning of the answer. The stream ends with the test.
func (k *talk) open(h *spoken, path string, headers ...string) edgetest.Reply {
	k.t.Helper()
	resp, err := h.Client.Do(h.Request("GET", path, "", headers...))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = resp.Body.Close() })
	b := []byte{}
	if resp.StatusCode >= 400 {
		if b, err = io.ReadAll(resp.Body); err != nil {
			k.t.Fatal(err)
		}
	}
	a := edgetest.Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(b), Last: resp.Close}
	k.heard(exchange{"GET", path, a})
	return a
}

// slowBody sends a body that does not arrive.
func (k *talk) slowBody(h *spoken, path string) {
	k.t.Helper()
	r, w := io.Pipe()
	req := h.Request("POST", strings.ReplaceAll(path, "{tap}", "bill"), "", "Content-Type", "application/json")
	req.Body = r
	var resp *http.Response
	resp, err := h.Client.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close(), w.Close()); err != nil {
		k.t.Fatal(err)
	}
	a := edgetest.Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(b), Last: resp.Close}
	a.Expect(k.t, 408, "REQUEST-TIMEOUT")
	k.heard(exchange{"POST", path, a})
}
