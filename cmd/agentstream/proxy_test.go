package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/cmd/agentstream/internal/publish"
	"agentstream/internal/testkit"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

const modelSays = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[]}}\n\n" +
	"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
	"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"good day\"}}\n\n" +
	"data: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
	"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n" +
	"data: {\"type\":\"message_stop\"}\n\n"

func modelServer(t *testing.T) *httptest.Server {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, modelSays)
	}))
	t.Cleanup(up.Close)
	return up
}

// running starts the command, waits until it answers, and ends it with the test.
func running(t *testing.T, args ...string) (addr, admin string) {
	t.Helper()
	addr, admin = testkit.FreeAddr(t), testkit.FreeAddr(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, append([]string{"proxy", "--listen", addr, "--admin-listen", admin, "--drain", "2s"}, args...))
	}()
	t.Cleanup(func() {
		cancel()
		if status := <-done; status != 0 {
			t.Errorf("exit status %d", status)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if resp, err := http.Get("http://" + admin + "/readyz"); err == nil {
			resp.Body.Close()
			return addr, admin
		}
		if time.Now().After(deadline) {
			t.Fatal("the proxy does not answer")
		}
	}
}

func ask(t *testing.T, addr string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+"/v1/messages",
		strings.NewReader(`{"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == 200 && string(got) != modelSays {
		t.Errorf("%q %v", got, err)
	}
	return resp
}

// TestProxyCommand runs the command before a model, onto a real log.
func TestProxyCommand(t *testing.T) {
	nats := testkit.NATS(t)
	log, err := pubjs.Open(t.Context(), nats.Conn)
	if err != nil {
		t.Fatal(err)
	}
	addr, admin := running(t, "--nats", nats.Server.ClientURL(), "--upstream", "anthropic="+modelServer(t).URL,
		"--tenant", "acme", "--tenant", "other")
	resp := ask(t, addr, "Agentstream-Tenant", "other")
	key := schema.RunKey{Tenant: "other", Run: resp.Header.Get("Agentstream-Run")}
	var text string
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(text,
		`"state":"done"`); time.Sleep(10 * time.Millisecond) {
		text = ""
		for pack, err := range log.Since(t.Context(), key, 0) {
			if err != nil {
				t.Fatal(err)
			}
			text += string(pack.Body)
		}
		if time.Now().After(deadline) {
			t.Fatalf("stored:\n%s", text)
		}
	}
	for _, want := range []string{"hello", "good day", "end_turn"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if resp := ask(t, addr, "Agentstream-Tenant", "foreign"); resp.StatusCode != http.StatusForbidden {
		t.Error(resp.Status)
	}
	page, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	body, _ := io.ReadAll(page.Body)
	for _, want := range []string{
		`agentstream_proxy_calls_total{outcome="ok",recorded="yes",upstream="anthropic"} 1`,
		`agentstream_proxy_calls_open{upstream="anthropic"} 0`,
		fmt.Sprintf(`agentstream_proxy_bytes_total{direction="received",upstream="anthropic"} %d`, len(modelSays)),
		"agentstream_proxy_held_bytes 0",
	} {
		if !bytes.Contains(body, []byte(want)) {
			t.Errorf("no %s", want)
		}
	}
}

// TestProxyCommandThroughAnEdge: the same over the HTTP API.
func TestProxyCommandThroughAnEdge(t *testing.T) {
	s := clitest.NewStandIn(t)
	addr, _ := running(t, "--edge", s.URL, "--upstream", "anthropic="+modelServer(t).URL)
	run := ask(t, addr).Header.Get("Agentstream-Run")
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(strings.Join(s.Lines(run), "\n"),
		`"state":"done"`); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("stored:\n%s", s.Lines(run))
		}
	}
}

// TestEdgeSinkBatches: each batch is small enough for the server to store it whole or not at all, and
// everything arrives in order, whatever becomes of the bytes afterwards.
func TestEdgeSinkBatches(t *testing.T) {
	s := clitest.NewStandIn(t)
	client, err := agentstream.New(agentstream.Config{BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	large := schema.MaxEventBytes - 1000
	var events []schema.Event
	add := func(child string, size int) {
		payload := fmt.Appendf(nil, `{"text":"%03d %s"}`, len(events), strings.Repeat("x", size))
		events = append(events, schema.Event{Type: schema.TypeTextDelta, ChildID: child, Payload: payload})
	}
	for _, size := range []int{10, large, 10, large, large, 300 << 10, 300 << 10, 10} {
		add("", size)
	}
	for range publish.MaxBatchEvents + 1 {
		add("run_child", 1)
	}
	sink := &edgeSink{client: client, publisher: client.Publisher(), run: "run_batches"}
	if _, err := sink.Send(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		clear(e.Payload)
	}
	batches := 0
	for _, r := range s.Log() {
		if r.Events > publish.MaxBatchEvents || r.Events > 1 && len(r.Body) > publish.MaxBatchBytes ||
			len(r.Body) > schema.MaxPackBytes {
			t.Errorf("a batch of %d events and %d bytes", r.Events, len(r.Body))
		}
		batches++
	}
	lines := s.Lines("run_batches")
	for i, line := range lines {
		if !strings.Contains(line, fmt.Sprintf(`{"text":"%03d x`, i)) {
			t.Fatalf("event %d is %.200s", i, line)
		}
	}
	if len(lines) != len(events) || batches != 7 {
		t.Errorf("%d events of %d in %d batches", len(lines), len(events), batches)
	}
}

// TestProxyFlags: what cannot be served is refused before anything listens.
func TestProxyFlags(t *testing.T) {
	password := &url.URL{Scheme: "https", User: url.UserPassword("u", "hunter2"), Host: "x"}
	for name, args := range map[string][]string{
		"no upstream":    {"--nats", "nats://127.0.0.1:1"}, // which is away: it is not waited for
		"half of TLS":    {"--nats", "nats://127.0.0.1:1", "--upstream", "a=http://x", "--tls-cert", "x.pem"},
		"not an address": {"--edge", "http://127.0.0.1:1", "--upstream", "a=x"},
		"no name":        {"--edge", "http://127.0.0.1:1", "--upstream", "https://x"},
		"password":       {"--edge", "http://127.0.0.1:1", "--upstream", "a=" + password.String()},
		"twice":          {"--edge", "http://127.0.0.1:1", "--upstream", "a=http://x", "--upstream", "a=http://y"},
		"tenant":         {"--edge", "http://127.0.0.1:1", "--upstream", "a=http://x", "--tenant", "a.b"},
		"two tenants":    {"--edge", "http://127.0.0.1:1", "--upstream", "a=http://x", "--tenant", "a", "--tenant", "b"},
		"open":           {"--edge", "http://127.0.0.1:1", "--upstream", "a=http://x", "--listen", "0.0.0.0:0"},
	} {
		var cli CLI
		parser, err := newParser(&cli, &settings{env: func(string) (string, bool) { return "", false }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(append([]string{"proxy", "--admin-listen", "off"}, args...)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err = cli.Proxy.Run(t.Context(), slog.New(slog.DiscardHandler))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
