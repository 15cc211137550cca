package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/protocols/native"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// handler is a server without a listener, with a log of its own.
func handler(t testing.TB) (http.Handler, *memory.Log) {
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
	srv, err := edge.New(edge.Config{Hub: hub, Appender: app, Protocols: []protocol.Protocol{native.Protocol()},
		Authenticate: edgetest.ByTenant})
	if err != nil {
		t.Fatal(err)
	}
	return srv.Handler(), log
}

// FuzzIngest holds that a body is either refused with 4xx, a JSON error and nothing stored, or taken
// whole; and that what was taken is valid and can be read back.
func FuzzIngest(f *testing.F) {
	for _, b := range badBodies {
		if len(b.body) < 4096 {
			f.Add("run", []byte(b.body), "", "")
		}
	}
	for _, s := range schematest.All() {
		if len(s.Events) > 40 {
			continue
		}
		var body []byte
		for i := range s.Events {
			body = append(s.Events[i].AppendLine(body), '\n')
		}
		f.Add("run_1", body, "application/x-ndjson", "key")
	}
	for _, p := range schematest.HostilePayloads() {
		if len(p) < 4096 {
			f.Add("run", []byte(`{"type":"custom.x","payload":`+p+`}`), "application/json", "")
		}
	}
	f.Add("a/b", []byte(edgetest.GoodLine), "text/html", "k\x00")
	h, log := handler(f)
	f.Fuzz(func(t *testing.T, run string, body []byte, contentType, key string) {
		r := httptest.NewRequest("POST", "/", bytes.NewReader(body))
		r.URL = &url.URL{Path: "/v1/agent/runs/" + run + "/events",
			RawPath: "/v1/agent/runs/" + url.PathEscape(run) + "/events"}
		if contentType != "" {
			r.Header["Content-Type"] = []string{contentType}
		}
		if key != "" {
			r.Header["Idempotency-Key"] = []string{key}
		}
		id := schema.RunKey{Tenant: "acme", Run: run}
		before, err := log.Head(context.Background(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		after, err := log.Head(context.Background(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		if w.Code != http.StatusOK {
			var p struct{ Error edgetest.Problem }
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Error.Code == "" || w.Code < 400 || w.Code > 499 {
				t.Fatalf("%d %q: %v", w.Code, w.Body, err)
			}
			if after.Last != before.Last {
				t.Fatalf("refused with %d, but %d became %d", w.Code, before.Last, after.Last)
			}
			return
		}
		if schema.ValidRunID(run) != nil {
			t.Fatalf("run %q is taken", run)
		}
		var receipt struct {
			First schema.Seq `json:"first_seq"`
			Last  schema.Seq `json:"last_seq"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &receipt); err != nil {
			t.Fatalf("%q: %v", w.Body, err)
		}
		replayed := w.Header().Get("Idempotency-Replayed") != ""
		if !replayed && (receipt.First != before.Last+1 || receipt.Last != after.Last || receipt.Last < receipt.First) {
			t.Fatalf("%d..%d stored, head went from %d to %d", receipt.First, receipt.Last, before.Last, after.Last)
		}
		for p, err := range log.Packs(context.Background(), id, before.Last, after.Last) {
			if err == nil {
				err = p.Check()
			}
			if err != nil {
				t.Fatalf("what is stored cannot be read: %v", err)
			}
		}
	})
}

// FuzzRequests holds that no request target, header or method makes the server fail or redirect.
func FuzzRequests(f *testing.F) {
	f.Add("GET", "/v1/agent/runs/run/stream?after=99", "", "")
	f.Add("GET", "/v1/agent/runs/run/events?after=1&limit=10", "", "")
	f.Add("HEAD", "/v1/agent/runs/run", "", "")
	f.Add("GET", "/v1/agent/runs/%2F..%2f/stream", "-1", "a b")
	f.Add("POST", "/v1/agent/runs", "evt_", "")
	f.Add("GET", "//../healthz?;=%", "1", "x")
	h, log := handler(f)
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run"}, schematest.ByName("plain"), 3)
	for i := range packs {
		head, _ := log.Head(context.Background(), packs[i].Key, "")
		if _, err := log.Append(context.Background(), &packs[i], head.Stored); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, method, target, lastID, requestID string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return // net/http refuses it before we see it
		}
		if strings.ContainsAny(method, " \r\n") || method == "" {
			return
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.URL, r.RequestURI = method, u, target
		r.Header["Last-Event-Id"] = []string{lastID}
		r.Header["X-Request-Id"] = []string{requestID}
		w := httptest.NewRecorder()
		h.ServeHTTP(deadlined{w}, r)
		if w.Code >= 500 || w.Code >= 300 && w.Code < 400 {
			t.Fatalf("%s %q: %d %q", method, target, w.Code, w.Body)
		}
		if w.Code >= 400 && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %q: %d %q", method, target, w.Code, w.Body)
		}
		for name, values := range w.Header() {
			for _, v := range values {
				if strings.ContainsAny(v, "\r\n\x00") {
					t.Fatalf("header %s: %q", name, v)
				}
			}
		}
	})
}

// deadlined is a recorder that takes deadlines, as a connection does.
type deadlined struct{ *httptest.ResponseRecorder }

func (deadlined) SetWriteDeadline(time.Time) error { return nil }
