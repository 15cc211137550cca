package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/internal/testkit"
	"agentstream/protocols/agui"
	"agentstream/schema"
	"agentstream/schema/redact/redacttest"
)

// wayIn is a request by which content comes in. @ in it stands for a secret, within a JSON string.
type wayIn struct{ method, path, typ, body string }

const jsonType = "application/json"

// waysIn are requests of all protocols that take JSON over HTTP.
var waysIn = map[string]wayIn{
	"events": {"POST", "/v1/agent/runs/RUN/events", "application/x-ndjson",
		`{"type":"tool.end","payload":{"call_id":"c","ok":true,"output":{"a":["@"]}}}` + "\n" +
			`{"type":"text.delta","payload":{"text":"@"}}` + "\n" + `{"type":"custom.x","note":"@","payload":{}}`},
	"events of many runs": {"POST", "/v1/agent/events", "application/x-ndjson",
		`{"run_id":"RUN","type":"tool.start","payload":{"call_id":"c","tool":"t","input":{"a":"@"}}}`},
	"run":      {"POST", "/v1/agent/runs", jsonType, `{"title":"@","metadata":{"a":"@"}}`},
	"put run":  {"PUT", "/v1/agent/runs/RUN", jsonType, `{"title":"@"}`},
	"message":  {"POST", "/v1/agent/runs/RUN/messages", jsonType, `{"content":"@"}`},
	"redirect": {"POST", "/v1/agent/runs/RUN/redirect", jsonType, `{"instruction":"@"}`},
	"cancel":   {"POST", "/v1/agent/runs/RUN/cancel", jsonType, `{"reason":"@"}`},
	"aisdk": {"POST", "/v1/ai-sdk/chat", jsonType,
		`{"id":"RUN","trigger":"submit-message","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"@"}]}]}`},
	"agui": {"POST", agui.Base, jsonType, `{"threadId":"RUN","runId":"r1","messages":[{"id":"m","role":"user","content":"@"}],` +
		`"tools":[],"context":[],"state":{"a":"@"},"forwardedProps":{}}`},
	"openai":    {"POST", "/openai/v1/responses", jsonType, `{"input":"@","background":true,"model":"m"}`},
	"langgraph": {"POST", "/threads/RUN/runs", jsonType, `{"assistant_id":"a","if_not_exists":"create","input":{"messages":[{"role":"user","content":"@"}]}}`},
	"qoder":     {"POST", "/api/v1/cloud/sessions", jsonType, `{"agent":"a","environment_id":"e","title":"@","metadata":{"k":"@"}}`},
	"otlp": {"POST", "/v1/traces", jsonType, `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"TRACE",` +
		`"spanId":"0102030405060708","name":"chat","kind":3,"startTimeUnixNano":"1764377000000000000",` +
		`"endTimeUnixNano":"1764377001000000000","attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},` +
		`{"key":"gen_ai.request.model","value":{"stringValue":"m"}},{"key":"gen_ai.output.messages","value":{"stringValue":` +
		`"[{\"role\":\"assistant\",\"parts\":[{\"type\":\"text\",\"content\":\"@\"}]}]"}}]}]}]}]}`},
}

// TestNoSecretIsStored: of secrets of every kind that come in by every way, whole and divided over deltas, nothing is in
// any file of dev: its log, its tables, its objects. The dry run on what was stored finds nothing either, and finds all of
// it where the rules came later.
func TestNoSecretIsStored(t *testing.T) {
	for name, rules := range map[string]string{"with rules": redacttest.Rules, "without": `{}`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			data, file := filepath.Join(dir, "data"), filepath.Join(dir, "rules.json")
			if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
				t.Fatal(err)
			}
			list := redacttest.Secrets(uint64(len(name)))
			t.Run("serve", func(t *testing.T) {
				at, bus := testkit.FreeAddr(t), testkit.FreeAddr(t)
				dev(t, "curl", "--no-demo", "--data", data, "--listen", at, "--nats-listen", bus, "--nats-ingest",
					"--otlp-settle", "100ms", "--redact", file)
				sendSecrets(t, "http://"+at, "nats://"+bus, list)
			})
			leaks := leaksIn(t, data, list)
			if with := name == "with rules"; with && len(leaks) > 0 || !with && len(leaks) < len(list) {
				t.Errorf("found in files: %q", leaks)
			}
			all := filepath.Join(dir, "all.json")
			if err := os.WriteFile(all, []byte(redacttest.Rules), 0o600); err != nil {
				t.Fatal(err)
			}
			var report struct{ Runs, Events, Changed int }
			_, call := program(t)
			out, said, status := call(nil, "redact", "--data", data, "--redact", all, "--dry-run", "--json")
			if status != 0 || json.Unmarshal([]byte(out), &report) != nil {
				t.Fatalf("%d: %s%s", status, out, said)
			}
			if report.Runs < len(list) || (report.Changed == 0) != (name == "with rules") {
				t.Errorf("dry run: %s", out)
			}
			if again := leaksIn(t, data, list); len(again) != len(leaks) {
				t.Errorf("the dry run has changed something: %q, %q", leaks, again)
			}
		})
	}
}

// sendSecrets sends each secret by every way.
func sendSecrets(t *testing.T, url, bus string, list []redacttest.Secret) {
	client, err := agentstream.New(agentstream.Config{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	publisher := client.Publisher()
	nc, err := nats.Connect(bus)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for i, s := range list {
		within := quoted(s.Text)
		within = within[1 : len(within)-1]
		for name, way := range waysIn {
			run := fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), i)
			switch {
			case strings.Contains(way.body, `"title"`) && len(s.Text) > 400:
				continue // it is too long for a title
			case name == "message" || name == "redirect" || name == "cancel":
				post(t, url, wayIn{"PUT", "/v1/agent/runs/RUN", jsonType, `{}`}, run)
			}
			secret := within
			if name == "otlp" { // JSON within a string
				secret = strings.ReplaceAll(within, `\`, `\\`)
			}
			way.body = strings.ReplaceAll(way.body, "@", secret)
			way.body = strings.ReplaceAll(way.body, "TRACE", fmt.Sprintf("%032x", i+1))
			post(t, url, way, run)
		}
		var lines []byte
		for text := "is " + s.Text + " so"; text != ""; {
			n := min(1+rng.IntN(9), len(text))
			lines = append(lines, `{"type":"text.delta","payload":{"text":`+quoted(text[:n])+`,"index":0}}`+"\n"...)
			text = text[n:]
		}
		post(t, url, wayIn{"POST", "/v1/agent/runs/RUN/events", "application/x-ndjson", string(lines)}, fmt.Sprint("cut-", i))
		if _, err := publisher.AppendLines(t.Context(), fmt.Sprint("lines-", i), lines); err != nil {
			t.Fatal(err)
		}
		event := schema.Event{Type: "message.end", Payload: []byte(`{"message_id":"m","content":[{"type":"text","text":"` + within + `"}]}`)}
		m, err := nc.Request(fmt.Sprint("ingest.default.nats-", i), agentstream.AppendNew(nil, &event), 10*time.Second)
		if err != nil || !bytes.Contains(m.Data, []byte(`"seq"`)) {
			t.Fatalf("%v: %s", err, m.Data)
		}
		if i == 0 { // an output that is kept as a blob
			large := `{"type":"tool.end","payload":{"call_id":"c","ok":true,"output":["` +
				strings.Repeat("x", schema.MaxEventBytes) + `","` + within + `"]}}`
			post(t, url, wayIn{"POST", "/v1/agent/runs/RUN/events", "application/x-ndjson", large}, "large")
		}
	}
	clitest.WaitFor(t, func() bool { // traces become runs, and the archive, which has the list, follows
		page, err := client.Runs(t.Context(), agentstream.RunsQuery{Search: "otel_", Limit: 200,
			States: []schema.RunState{schema.StateDone}})
		return err == nil && len(page.Runs) == len(list)
	})
}

// post sends a request, and reads the beginning of its answer: some are streams.
func post(t *testing.T, url string, way wayIn, run string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	body := strings.ReplaceAll(way.body, "RUN", run)
	req, err := http.NewRequestWithContext(ctx, way.method, url+strings.ReplaceAll(way.path, "RUN", run),
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", way.typ)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		t.Errorf("%s %s: %d %s", way.method, way.path, resp.StatusCode, text)
	}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// leaksIn returns which secrets are in which file of a folder, that of SQLite compressed or not.
func leaksIn(t *testing.T, folder string, list []redacttest.Secret) (leaks []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, kind := range redacttest.Leak(b, list) {
			leaks = append(leaks, kind+" in "+filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return leaks
}
