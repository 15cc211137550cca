package proxy_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/adapters/proxy"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a proxy between real servers, with a real log.
type rig struct {
	t         testing.TB
	nats      *testkit.Server
	log       producers.Log
	upstreams map[string]string
	proxy     *proxy.Proxy
	url       string
	http      *http.Client
	said      *quiet

	mu   sync.Mutex
	lost []proxy.Loss
	done []proxy.Done
	kept int

	stop func() // ends the proxy and waits for it
}

// quiet keeps the process's log.
type quiet struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (q *quiet) Write(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.buf.Write(b)
}

func (q *quiet) String() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.buf.String()
}

// start runs a proxy before one upstream.
func start(t testing.TB, upstream http.Handler, change ...func(*proxy.Config)) *rig {
	t.Helper()
	up := httptest.NewServer(upstream)
	t.Cleanup(up.Close)
	return startAt(t, map[string]string{"up": up.URL}, change...)
}

func startAt(t testing.TB, upstreams map[string]string, change ...func(*proxy.Config)) *rig {
	t.Helper()
	r := &rig{t: t, nats: testkit.NATS(t), said: &quiet{}}
	log, err := natsjs.Open(t.Context(), r.nats.Conn)
	if err != nil {
		t.Fatal(err)
	}
	r.log = log
	return begin(t, r, upstreams, change...)
}

// begin runs a proxy onto the log of a rig.
func begin(t testing.TB, r *rig, upstreams map[string]string, change ...func(*proxy.Config)) *rig {
	t.Helper()
	r.upstreams = upstreams
	transport := proxy.NewTransport()
	cfg := proxy.Config{
		Tenants: []string{"acme", "other"}, Open: proxy.Publishers(producers.Config{Log: r.log}), Transport: transport,
		Logger: slog.New(slog.NewTextHandler(r.said, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Hooks: proxy.Hooks{
			Lost:   func(l proxy.Loss) { r.mu.Lock(); r.lost = append(r.lost, l); r.mu.Unlock() },
			Kept:   func(_ string, n int) { r.mu.Lock(); r.kept += n; r.mu.Unlock() },
			Closed: func(d proxy.Done) { r.mu.Lock(); r.done = append(r.done, d); r.mu.Unlock() },
		},
	}
	for name, u := range upstreams {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Upstreams = append(cfg.Upstreams, proxy.Upstream{Name: name, URL: parsed})
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if r.proxy, err = proxy.New(cfg); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r.proxy)
	r.url, r.http = server.URL, &http.Client{Transport: &http.Transport{DisableCompression: true,
		MaxIdleConnsPerHost: 100}}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- r.proxy.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		server.Close()
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		r.http.CloseIdleConnections()
		transport.CloseIdleConnections()
	})
	t.Cleanup(r.stop)
	return r
}

// post sends a request and reads the whole answer.
func (r *rig) post(path, body string, headers ...string) (*http.Response, []byte) {
	r.t.Helper()
	resp, err := r.open(r.t.Context(), path, body, headers...)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("after %d bytes: %v\n%s", len(got), err, r.said)
	}
	return resp, got
}

func (r *rig) open(ctx context.Context, path, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return r.http.Do(req)
}

// events reads what is stored of a run.
func (r *rig) events(run string) []schema.Event { return r.eventsOf("acme", run) }

func (r *rig) eventsOf(tenant, run string) (out []schema.Event) {
	r.t.Helper()
	for pack, err := range r.log.Since(r.t.Context(), schema.RunKey{Tenant: tenant, Run: run}, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		for line := range bytes.Lines(pack.Body) {
			e, err := schema.DecodeLine(bytes.TrimSpace(line))
			if err != nil {
				r.t.Fatal(err)
			}
			out = append(out, e)
		}
	}
	return out
}

// until waits until a run's events are as wanted, and returns them.
func (r *rig) until(run string, want func([]schema.Event) bool) []schema.Event {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		events := r.events(run)
		if want(events) {
			return events
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d events, and not what was waited for:\n%s\n%s", len(events), story(events), r.said)
		}
	}
}

// ended waits until the run is over.
func (r *rig) ended(run string) []schema.Event {
	r.t.Helper()
	return r.until(run, func(events []schema.Event) bool {
		if len(events) == 0 {
			return false
		}
		e := events[len(events)-1]
		if e.Type != schema.TypeRunLifecycle || e.ChildID != "" {
			return false
		}
		l, err := schema.ParseLifecycle(e.Payload)
		return err == nil && l.State.Final()
	})
}

// calls waits until so many calls are told whole.
func (r *rig) calls(run string, n int) []schema.Event {
	r.t.Helper()
	return r.until(run, func(events []schema.Event) bool { return count(events, schema.TypeModelEnd) == n })
}

func count(events []schema.Event, typ string) (n int) {
	for _, e := range events {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// told leaves out what the proxy says itself.
func told(events []schema.Event) (out []schema.Event) {
	for _, e := range events {
		switch e.Type {
		case schema.TypeRunLifecycle, schema.TypeModelStart, schema.TypeModelEnd:
		default:
			out = append(out, e)
		}
	}
	return out
}

// story is a run for people.
func story(events []schema.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Type)
		if e.ChildID != "" {
			b.WriteString(" @" + e.ChildID)
		}
		b.WriteString(" " + string(e.Payload[:min(len(e.Payload), 400)]) + "\n")
	}
	return b.String()
}

func mustContain(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %s in\n%s", p, text)
		}
	}
}

// framed checks that messages and blocks begin and end, and that no text stands between them.
func framed(t testing.TB, events []schema.Event) {
	t.Helper()
	open := map[string]string{} // message of a lane
	for i, e := range events {
		if e.Seq != schema.Seq(i+1) {
			t.Fatalf("event %d has seq %d", i+1, e.Seq)
		}
		switch e.Type {
		case schema.TypeMessageStart:
			if open[e.ChildID] != "" {
				t.Fatalf("seq %d: a message begins within %s", e.Seq, open[e.ChildID])
			}
			open[e.ChildID] = string(e.Payload)
		case schema.TypeMessageEnd:
			if open[e.ChildID] == "" {
				t.Fatalf("seq %d: a message ends that has not begun", e.Seq)
			}
			open[e.ChildID] = ""
		case schema.TypeBlockStart, schema.TypeBlockEnd, schema.TypeTextDelta, schema.TypeReasoningDelta, schema.TypeToolInputDelta:
			if open[e.ChildID] == "" {
				t.Fatalf("seq %d: %s outside of a message", e.Seq, e.Type)
			}
		}
	}
	for lane, m := range open {
		if m != "" {
			t.Errorf("lane %q: %s is still open", lane, m)
		}
	}
}

func (r *rig) losses() (out []proxy.Loss) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(out, r.lost...)
}

func (r *rig) outcomes() (out []proxy.Done) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(out, r.done...)
}

// replay answers with a body in random pieces.
func replay(body []byte, contentType string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", contentType)
		rng := rand.New(rand.NewPCG(uint64(len(body)), 7))
		for rest := body; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(2000))
			if _, err := w.Write(rest[:n]); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			rest = rest[n:]
		}
	})
}

// answer is a small Anthropic stream that says a text.
func answer(id string, texts ...string) string {
	var b strings.Builder
	frame := func(data string) { b.WriteString("data: " + data + "\n\n") }
	frame(`{"type":"message_start","message":{"id":"` + id +
		`","type":"message","role":"assistant","model":"claude","content":[],"usage":{"input_tokens":5}}}`)
	frame(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	for _, t := range texts {
		frame(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + t + `"}}`)
	}
	frame(`{"type":"content_block_stop","index":0}`)
	frame(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`)
	frame(`{"type":"message_stop"}`)
	return b.String()
}

const sse = "text/event-stream; charset=utf-8"
