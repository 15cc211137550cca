package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"agentstream/adapters/proxy"
	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/schema"
)

// gated is a log that takes nothing until it is opened.
type gated struct {
	producers.Log
	open chan struct{}
}

func (g *gated) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	select {
	case <-g.open:
		return g.Log.Append(ctx, p, after)
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", schema.ErrUnavailable, ctx.Err())
	}
}

// TestSlowLog: while the log takes nothing, a large answer is with its client whole and at once. When
// the log takes events again, the run has the beginning, says what it lacks, and ends honestly.
func TestSlowLog(t *testing.T) {
	texts := make([]string, 20000)
	for i := range texts {
		texts[i] = fmt.Sprintf("word %d ", i)
	}
	body := []byte(answer("msg_1", texts...))
	var gate *gated
	r := startGated(t, &gate, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("X-Small") != "" {
			says("small").ServeHTTP(w, req)
			return
		}
		replay(body, sse).ServeHTTP(w, req)
	}), func(c *proxy.Config) { c.CallBytes = 256 << 10 })
	resp, got := r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_slow") // the log would hold it up for ever
	if !bytes.Equal(got, body) {
		t.Fatalf("%d bytes of %d", len(got), len(body))
	}
	if s := r.proxy.Stats(); s.Held == 0 || s.Held > 256<<10 || s.Recording != 1 {
		t.Errorf("%+v", s)
	}
	if resp.StatusCode != 200 || len(r.events("run_slow")) != 0 {
		t.Error("the log was not closed")
	}
	close(gate.open)
	events := r.calls("run_slow", 1)
	framed(t, events)
	var fold schema.Fold
	for i := range events {
		fold.Add(&events[i])
	}
	text := fold.Text("", "text")
	if !strings.HasPrefix(strings.Join(texts, ""), text) || len(text) < 10000 || count(events, schema.TypeLoss) != 1 {
		t.Errorf("%d characters, %d losses", len(text), count(events, schema.TypeLoss))
	}
	lost := r.losses()
	if len(lost) != 1 || !lost[0].Recorded || lost[0].Bytes < int64(len(body)-256<<10) ||
		lost[0].Bytes > int64(len(body)) {
		t.Errorf("%+v", lost)
	}
	var end schema.Event
	for _, e := range events {
		if e.Type == schema.TypeMessageEnd {
			end = e
		}
	}
	mustContain(t, string(end.Payload), `"incomplete":true`)
	if strings.Contains(string(end.Payload), `"error"`) {
		t.Errorf("the stream was not cut, but its record: %s", end.Payload)
	}
	mustContain(t, story(events[len(events)-6:]),
		fmt.Sprintf(`loss {"reason":"the buffer was full","bytes":%d}`, lost[0].Bytes), `"ok":true`)
	// The next call of the run is whole.
	r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_slow", "X-Small", "1")
	if events := r.calls("run_slow", 2); count(events, schema.TypeLoss) != 1 {
		t.Error("the next call lacks something as well")
	}
	if s := r.proxy.Stats(); s.Held != 0 || s.Recording != 0 {
		t.Errorf("%+v", s)
	}
}

// startGated is start with a gate before the log, which is closed.
func startGated(t *testing.T, gate **gated, upstream http.Handler, change ...func(*proxy.Config)) *rig {
	t.Helper()
	g := &gated{open: make(chan struct{})}
	*gate = g
	change = append(change, func(c *proxy.Config) {
		c.Open = proxy.Publishers(producers.Config{Log: g})
	})
	up := httptest.NewServer(upstream)
	t.Cleanup(up.Close)
	r := startAt(t, map[string]string{"up": up.URL}, change...)
	g.Log = r.log
	return r
}

// TestTotalBound: many calls share one bound, and each says what it lacks.
func TestTotalBound(t *testing.T) {
	body := []byte(answer("msg_1", strings.Repeat("x", 50000)))
	var gate *gated
	r := startGated(t, &gate, replay(body, sse), func(c *proxy.Config) { c.TotalBytes = 200 << 10; c.MaxCalls = 18 })
	var ids []string
	for i := range 20 {
		resp, got := r.post("/v1/messages", `{}`)
		if !bytes.Equal(got, body) {
			t.Fatalf("call %d: %d bytes", i, len(got))
		}
		ids = append(ids, resp.Header.Get(proxy.HeaderRun))
	}
	if s := r.proxy.Stats(); s.Held > 200<<10 || s.Recording != 18 {
		t.Errorf("%+v", s)
	}
	close(gate.open)
	whole, lacking := 0, 0
	for _, id := range ids[:18] {
		events := r.ended(id)
		framed(t, events)
		if n := count(events, schema.TypeLoss); n == 0 {
			whole++
		} else {
			lacking++
		}
	}
	if whole < 2 || lacking < 10 {
		t.Errorf("%d whole, %d lacking", whole, lacking)
	}
	untold := 0
	for _, l := range r.losses() {
		if !l.Recorded {
			untold++
			if l.Reason != "too many calls wait for the log" || l.Bytes != int64(len(body)) {
				t.Errorf("%+v", l)
			}
		}
	}
	if untold != 2 || !strings.Contains(r.said.String(), "has no loss event") {
		t.Errorf("%d calls were turned away", untold)
	}
}

// TestLogStops: the log's server is stopped in the middle of an answer and comes back. The client has
// noticed nothing, and the run is whole.
func TestLogStops(t *testing.T) {
	first, rest := make(chan bool), make(chan bool)
	frames := strings.SplitAfter(answer("msg_1", "before", "while", "after"), "\n\n")
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, strings.Join(frames[:3], ""))
		w.(http.Flusher).Flush()
		<-first
		_, _ = io.WriteString(w, strings.Join(frames[3:4], ""))
		w.(http.Flusher).Flush()
		<-rest
		_, _ = io.WriteString(w, strings.Join(frames[4:], ""))
	}))
	resp, err := r.open(t.Context(), "/v1/messages", `{}`, proxy.HeaderRun, "run_stop", proxy.HeaderEnd, "done")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.until("run_stop", func(events []schema.Event) bool { return count(events, schema.TypeTextDelta) == 1 })
	dir := strings.TrimSuffix(r.nats.Server.JetStreamConfig().StoreDir, "/jetstream")
	addr, err := url.Parse(r.nats.Server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	r.nats.Server.Shutdown()
	r.nats.Server.WaitForShutdown()
	close(first)
	close(rest)
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != strings.Join(frames, "") {
		t.Errorf("%q %v", got, err)
	}
	var port int
	_, _ = fmt.Sscan(addr.Port(), &port)
	again, err := natskit.Serve(natskit.Embedded{StoreDir: dir, Listen: addr.Hostname(), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(); again.Shutdown(); again.WaitForShutdown() })
	for deadline := time.Now().Add(20 * time.Second); !r.nats.Conn.IsConnected(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not connected again")
		}
	}
	events := r.ended("run_stop")
	framed(t, events)
	if count(events, schema.TypeTextDelta) != 3 || count(events, schema.TypeLoss) != 0 {
		t.Errorf("%s", story(events))
	}
}

// TestLogNeverComesBack: what is not stored when the proxy ends is said to the operator.
func TestLogNeverComesBack(t *testing.T) {
	body := []byte(answer("msg_1", "lost"))
	var gate *gated
	r := startGated(t, &gate, replay(body, sse), func(c *proxy.Config) { c.Grace = 50 * time.Millisecond })
	for range 2 {
		if _, got := r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_never"); !bytes.Equal(got, body) {
			t.Fatalf("%q", got)
		}
	}
	r.stop()
	lost := r.losses()
	if len(lost) != 2 {
		t.Fatalf("%+v", lost)
	}
	for _, l := range lost {
		if l.Recorded || l.Bytes != int64(len(body)) || l.Key.Run != "run_never" {
			t.Errorf("%+v", l)
		}
	}
	mustContain(t, r.said.String(), "the recording of a run is incomplete, and the run has no loss event", "run_never",
		fmt.Sprintf("bytes=%d", len(body)))
	if s := r.proxy.Stats(); s.Held != 0 || s.Recording != 0 || s.Runs != 0 {
		t.Errorf("%+v", s)
	}
}

// TestLongAnswer: a small body that unpacks to a large one is recorded as far as the bound, and passes.
func TestLongAnswer(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, strings.Join(strings.SplitAfter(answer("msg_1", "begins"), "\n\n")[:3], ""))
	_, _ = z.Write(bytes.Repeat([]byte(": a comment\n\n"), 4<<20))
	z.Close()
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		replay(packed.Bytes(), sse).ServeHTTP(w, req)
	}), func(c *proxy.Config) { c.AnswerBytes = 64 << 10 })
	resp, got := r.post("/v1/messages", `{}`)
	if !bytes.Equal(got, packed.Bytes()) {
		t.Fatalf("%d bytes of %d", len(got), packed.Len())
	}
	events := r.ended(resp.Header.Get(proxy.HeaderRun))
	framed(t, events)
	mustContain(t, story(events), "begins", `loss {"reason":"the answer is longer than is recorded"`, `"state":"done"`)
	if s := r.proxy.Stats(); s.Held != 0 {
		t.Errorf("%+v", s)
	}
}

// TestLongFrame: an answer in one piece that is longer than is read is lost to the run, and is no error: the client has
// it.
func TestLongFrame(t *testing.T) {
	text := strings.Repeat("all work and no play ", 9<<20/21)
	body := `{"id":"msg_1","type":"message","role":"assistant","model":"c","content":[{"type":"text","text":"` + text +
		`"}],"stop_reason":"end_turn"}`
	for path, answer := range map[string]string{
		"/v1/messages": body,
		"/v1/chat/completions": `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"` + text +
			`"},"finish_reason":"stop"}]}`,
		"/v1/responses": "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"output\":[],\"x\":\"" +
			text + "\"}}\n\n",
	} {
		r := start(t, replay([]byte(answer), "application/json"), func(c *proxy.Config) { c.CallBytes = 32 << 20 })
		run := "run_long"
		_, got := r.post(path, `{}`, proxy.HeaderRun, run, proxy.HeaderEnd, "done")
		if string(got) != answer {
			t.Fatalf("%s: %d bytes of %d", path, len(got), len(answer))
		}
		events := r.ended(run)
		framed(t, events)
		mustContain(t, story(events), `loss {"reason":"the answer is longer than is recorded","bytes":94`, `"ok":true`,
			`"state":"done"`)
		if l := r.losses(); len(l) != 1 || !l[0].Recorded {
			t.Errorf("%s: %+v", path, l)
		}
	}
}
