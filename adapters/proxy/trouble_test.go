package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"agentstream/adapters/proxy"
	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/schema"
)

// TestUpstreamErrors: errors pass unchanged, the run has them, and a named run goes on.
func TestUpstreamErrors(t *testing.T) {
	type failure struct {
		status int
		body   string
		want   []string
	}
	cases := map[string]failure{
		"401": {401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key sk-secret-0123456789"}}`, []string{`"error":{"type":"authentication_error","message":"invalid x-api-key …"}`, `"state":"error","reason":"401 authentication_error: invalid x-api-key …"`}},
		"429": {429, "{\n \"error\": {\"message\": \"slow down\", \"type\": \"rate\", \"code\": null}\n}",
			[]string{`"message":"slow down"`, `"status":429`, `"ok":false`}},
		"string": {400, `{"error":"bad"}`, []string{`"error":{"value":"bad"}`, `400 bad`}},
		"list": {503, `[{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}]`,
			[]string{`"message":"overloaded"`}},
		"other": {422, `{"detail":[{"msg":"field required"}]}`, []string{`"error":{"detail":[{"msg":"field required"}]}`}},
		"html": {502, "<html>\nbad gateway</html>",
			[]string{`custom.anthropic.bad_frame`, `"message":"Bad Gateway"`, `bad gateway</html>`}},
		"empty": {500, "", []string{`"message":"Internal Server Error"`}},
		"moved": {307, "", []string{`Temporary Redirect`}},
		"huge": {500, `{"error":{"message":"` + strings.Repeat("x", 1<<20) + `"}}`,
			[]string{`"message":"Internal Server Error"`}},
	}
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c := cases[req.Header.Get("X-Case")]
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(c.status)
		_, _ = io.WriteString(w, c.body)
	}))
	r.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for name, c := range cases {
		resp, got := r.post("/v1/messages", `{}`, "X-Case", name, "X-Api-Key", "sk-secret-0123456789")
		if resp.StatusCode != c.status || string(got) != c.body || resp.Header.Get("Retry-After") != "3" {
			t.Errorf("%s: %s %.200q", name, resp.Status, got)
		}
		events := r.ended(resp.Header.Get(proxy.HeaderRun))
		framed(t, events)
		mustContain(t, story(events), c.want...)
		mustContain(t, story(events), `"state":"error"`, `"stop_reason":"error"`)
	}
	r.post("/v1/messages", `{}`, "X-Case", "429", proxy.HeaderRun, "run_n")
	r.post("/v1/messages", `{}`, "X-Case", "429", proxy.HeaderRun, "run_n")
	if events := r.calls("run_n", 2); count(events, schema.TypeRunLifecycle) != 1 {
		t.Errorf("a failed call has ended its run:\n%s", story(events))
	}
}

// TestErrorInStream: an error in mid-stream ends the message with it.
func TestErrorInStream(t *testing.T) {
	frames := strings.SplitAfter(answer("msg_1", "so far"), "\n\n")
	body := strings.Join(frames[:3], "") + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	r := start(t, replay([]byte(body), sse))
	resp, got := r.post("/v1/messages", `{}`)
	if string(got) != body {
		t.Errorf("%q", got)
	}
	events := r.ended(resp.Header.Get(proxy.HeaderRun))
	framed(t, events)
	mustContain(t, story(events), "so far", `overloaded_error`, `"state":"error","reason":"overloaded_error: Overloaded"`)
}

// TestUpstreamDies in mid-stream: the client sees a broken answer and the run says so.
func TestUpstreamDies(t *testing.T) {
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		frames := strings.SplitAfter(answer("msg_1", "half of it", "never"), "\n\n")
		_, _ = io.WriteString(w, strings.Join(frames[:3], ""))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	resp, err := r.open(t.Context(), "/v1/messages", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err == nil || !strings.Contains(string(got), "half of it") {
		t.Errorf("%q %v", got, err)
	}
	events := r.ended(resp.Header.Get(proxy.HeaderRun))
	framed(t, events)
	mustContain(t, story(events), "half of it", `"incomplete":true`,
		`"state":"error","reason":"the upstream's answer broke off"`)
	if d := r.outcomes(); len(d) != 1 || d[0].Outcome != proxy.OutcomeBroken {
		t.Errorf("%+v", d)
	}
}

// TestUnreachable: no upstream is a 502 of the proxy's own, and an error in the run.
func TestUnreachable(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	r := startAt(t, map[string]string{"up": gone.URL})
	resp, got := r.post("/v1/messages", `{"messages":[{"role":"user","content":"hi"}]}`)
	if resp.StatusCode != 502 || !strings.Contains(string(got), "agentstream_proxy") {
		t.Errorf("%s %s", resp.Status, got)
	}
	events := r.ended(resp.Header.Get(proxy.HeaderRun))
	framed(t, events)
	mustContain(t, story(events), `"type":"unreachable"`,
		`"state":"error","reason":"unreachable: the upstream did not answer"`)
}

// TestClientLeaves: the upstream's call is cancelled, and the run says what happened.
func TestClientLeaves(t *testing.T) {
	cancelled := make(chan bool, 3)
	frames := strings.SplitAfter(answer("msg_1", "one", "two"), "\n\n")
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if n := req.Header.Get("X-Frames"); n != "0" {
			until := 3
			if n == "all" {
				until = len(frames)
			}
			_, _ = io.WriteString(w, strings.Join(frames[:until], ""))
			w.(http.Flusher).Flush()
		}
		<-req.Context().Done()
		cancelled <- true
	}))
	for _, tt := range []struct{ frames, state, reason string }{
		{"some", `"state":"aborted"`, `"reason":"the client left before the answer was whole"`},
		{"0", `"state":"aborted"`, `cancelled: the client left before the answer was whole`},
		{"all", `"state":"done"`, `"stop_reason":"end_turn"`}, // it had all that there is to say
	} {
		ctx, cancel := context.WithCancel(t.Context())
		run := "run_" + tt.frames
		if tt.frames == "0" {
			time.AfterFunc(100*time.Millisecond, cancel)
		}
		resp, err := r.open(ctx, "/v1/messages", `{}`, "X-Frames", tt.frames, proxy.HeaderRun, run, proxy.HeaderEnd, "done")
		if tt.frames != "0" {
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 100)
			_, _ = io.ReadFull(resp.Body, buf)
			r.until(run, func(events []schema.Event) bool { return count(events, schema.TypeTextDelta) > 0 })
			if tt.frames == "all" {
				r.until(run, func(events []schema.Event) bool { return count(events, schema.TypeMessageEnd) > 0 })
			}
			cancel()
			resp.Body.Close()
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		cancel()
		<-cancelled
		events := r.ended(run)
		framed(t, events)
		mustContain(t, story(events), tt.state, tt.reason)
	}
	for _, d := range r.outcomes() {
		if d.Outcome != proxy.OutcomeCancelled {
			t.Errorf("%+v", d)
		}
	}
}

// TestWholeAnswers: answers that are not streamed are recorded as well.
func TestWholeAnswers(t *testing.T) {
	bodies := map[string]string{
		"/v1/messages":                         `{"id":"msg_9","type":"message","role":"assistant","model":"c","content":[{"type":"text","text":"whole"}],"stop_reason":"end_turn","usage":{"input_tokens":1}}`,
		"/v1/chat/completions":                 `{"id":"c1","object":"chat.completion","model":"g","choices":[{"index":0,"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}]}`,
		"/v1/responses":                        "{\n  \"id\": \"resp_1\", \"object\": \"response\", \"status\": \"completed\", \"model\": \"g\",\n \"output\": [{\"type\":\"message\",\"id\":\"m1\",\"role\":\"assistant\",\"status\":\"completed\",\"content\":[{\"type\":\"output_text\",\"text\":\"whole\",\"annotations\":[]}]}]\n}",
		"/v1beta/models/gem-1:generateContent": `{"candidates":[{"content":{"role":"model","parts":[{"text":"whole"}]},"finishReason":"STOP"}],"modelVersion":"gem-1"}`,
	}
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, bodies[req.URL.Path])
	}))
	for path, body := range bodies {
		resp, got := r.post(path, `{}`)
		if string(got) != body {
			t.Errorf("%s: %q", path, got)
		}
		events := r.ended(resp.Header.Get(proxy.HeaderRun))
		framed(t, events)
		var fold schema.Fold
		for i := range events {
			fold.Add(&events[i])
		}
		if fold.Text("", "text") != "whole" || fold.State != schema.StateDone {
			t.Errorf("%s:\n%s", path, story(events))
		}
	}
}

// TestEncodings: the client's bytes are those of the upstream, packed; the run has what is in them.
func TestEncodings(t *testing.T) {
	plain := []byte(answer("msg_1", "packed text"))
	pack := map[string]func(io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser {
			z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
			return z
		},
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"raw":     func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 5); return f },
	}
	up := &seen{serve: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := req.Header.Get("X-Pack")
		w.Header().Set("Content-Encoding", strings.Replace(name, "raw", "deflate", 1))
		var buf bytes.Buffer
		if p := pack[name]; p != nil {
			z := p(&buf)
			_, _ = z.Write(plain)
			z.Close()
		} else {
			buf.Write(plain)
		}
		replay(buf.Bytes(), sse).ServeHTTP(w, req)
	})}
	r := start(t, up)
	for name := range pack {
		resp, got := r.post("/v1/messages", `{}`, "X-Pack", name, "Accept-Encoding", "br, gzip;q=0.8, zstd, *;q=0.1")
		if resp.Header.Get("Content-Encoding") != name && name != "raw" {
			t.Errorf("%s: %v", name, resp.Header)
		}
		if bytes.Equal(got, plain) {
			t.Errorf("%s: unpacked on the way", name)
		}
		events := r.ended(resp.Header.Get(proxy.HeaderRun))
		mustContain(t, story(events), "packed text", `"state":"done"`)
	}
	for _, req := range up.all() {
		if a := req.Header.Get("Accept-Encoding"); a != "gzip;q=0.8, zstd" {
			t.Errorf("Accept-Encoding %q", a)
		}
	}
	// What cannot be read is a loss that is said.
	for _, name := range []string{"br", "gzip, gzip, gzip"} {
		resp, got := r.post("/v1/messages", `{}`, "X-Pack", name)
		events := r.ended(resp.Header.Get(proxy.HeaderRun))
		if !bytes.Equal(got, plain) {
			t.Errorf("%q", got)
		}
		lost := 0 // it comes in pieces, each of which may be a loss
		for _, e := range events {
			var loss struct {
				Reason string
				Bytes  int
			}
			if e.Type != schema.TypeLoss {
				continue
			}
			if err := json.Unmarshal(e.Payload, &loss); err != nil || loss.Reason != "the content coding cannot be read" {
				t.Errorf("%s: %v", e.Payload, err)
			}
			lost += loss.Bytes
		}
		if lost != len(plain) {
			t.Errorf("%d bytes are lost of %d:\n%s", lost, len(plain), story(events))
		}
		mustContain(t, story(events), `"state":"done"`) // the call went well
	}
}

// TestEndedByOthers: a run that somebody ends while a call goes on takes nothing more of that call; the
// next one is a follow-up.
func TestEndedByOthers(t *testing.T) {
	next := make(chan bool)
	frames := strings.SplitAfter(answer("msg_1", "one", "two"), "\n\n")
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, strings.Join(frames[:3], ""))
		w.(http.Flusher).Flush()
		<-next
		_, _ = io.WriteString(w, strings.Join(frames[3:], ""))
	}))
	resp, err := r.open(t.Context(), "/v1/messages", `{}`, proxy.HeaderRun, "run_e")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.until("run_e", func(events []schema.Event) bool { return count(events, schema.TypeTextDelta) == 1 })
	app, err := producers.NewAppender(producers.AppenderConfig{Log: r.log})
	if err != nil {
		t.Fatal(err)
	}
	end := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"aborted","reason":"by hand"}`)}
	if _, err := app.Append(t.Context(), schema.RunKey{Tenant: "acme", Run: "run_e"}, []schema.Event{end},
		producers.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	close(next)
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != strings.Join(frames, "") {
		t.Errorf("%q %v", got, err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(r.losses()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody says that the rest was not taken")
		}
	}
	if l := r.losses(); l[0].Recorded || l[0].Reason != "the run was ended meanwhile" {
		t.Errorf("%+v", l)
	}
	before := len(r.events("run_e"))
	r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_e")
	mustContain(t, story(r.calls("run_e", 1)[before:]), `run.lifecycle {"state":"running"`, `"ok":true`)
}

// TestIdleEnd: a run that nobody writes to is ended; one that others write to is not.
func TestIdleEnd(t *testing.T) {
	r := start(t, says("x"), func(c *proxy.Config) { c.IdleEnd = 400 * time.Millisecond })
	r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_idle")
	r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_busy")
	app, err := producers.NewAppender(producers.AppenderConfig{Log: r.log})
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		e := schema.Event{Type: schema.TypeProgress, Payload: []byte(`{"message":"still here"}`)}
		if _, err := app.Append(t.Context(), schema.RunKey{Tenant: "acme", Run: "run_busy"}, []schema.Event{e},
			producers.AppendOptions{}); err != nil {
			t.Fatal(err) // it was ended
		}
	}
	mustContain(t, story(r.ended("run_idle")), `"state":"done","reason":"no call for 400ms"`)
	mustContain(t, story(r.ended("run_busy")), `"state":"done","reason":"no call for 400ms"`)
}

// lateSink lets somebody else write to the run right behind the second look at it.
type lateSink struct {
	proxy.Sink
	looks *atomic.Int32
	write func()
}

func (s lateSink) Standing(ctx context.Context) (proxy.Standing, error) {
	at, err := s.Sink.Standing(ctx)
	if s.looks.Add(1) == 3 { // the first was when the run began
		s.write()
	}
	return at, err
}

// TestIdleEndNotice: who writes between the last look and the end keeps the run open.
func TestIdleEndNotice(t *testing.T) {
	var looks atomic.Int32
	var r *rig
	r = start(t, says("x"), func(c *proxy.Config) {
		c.IdleEnd = 100 * time.Millisecond
		c.Open = func(ctx context.Context, key schema.RunKey) (proxy.Sink, error) {
			app, err := producers.NewAppender(producers.AppenderConfig{Log: r.log})
			if err != nil {
				return nil, err
			}
			sink, err := proxy.Publishers(producers.Config{Log: r.log})(ctx, key)
			return lateSink{sink, &looks, func() {
				e := schema.Event{Type: schema.TypeProgress, Payload: []byte(`{"message":"here"}`)}
				if _, err := app.Append(ctx, key, []schema.Event{e}, producers.AppendOptions{}); err != nil {
					t.Error(err)
				}
			}}, err
		}
	})
	r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_late")
	r.ended("run_late")
	if n := looks.Load(); n < 5 {
		t.Errorf("the run was ended after %d looks, over somebody's head", n)
	}
}

// TestSecrets: credentials are in no event and no line of the log.
func TestSecrets(t *testing.T) {
	const secret = "sk-very-secret-0123456789abcdef"
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("X-Fail") != "" {
			w.WriteHeader(401)
			fmt.Fprintf(w, `{"error":{"message":"incorrect key %s"}}`, secret)
			return
		}
		if req.Header.Get("X-Die") != "" {
			panic(http.ErrAbortHandler)
		}
		says("fine").ServeHTTP(w, req)
	}))
	for _, headers := range [][]string{
		{"X-Api-Key", secret}, {"Authorization", "Bearer " + secret}, {"X-Goog-Api-Key", secret, "X-Fail", "1"},
		{"Authorization", "Bearer " + secret, "X-Fail", "1"}, {"Cookie", "session=" + secret, "X-Die", "1"},
		{"X-Custom", secret},
	} {
		r.post("/v1/messages?key="+secret, `{"messages":[{"role":"user","content":"hi"}]}`,
			append(headers, proxy.HeaderRun, "run_s")...)
	}
	r.post("/v1/messages?key="+secret, `{}`, proxy.HeaderTenant, "foreign", "X-Api-Key", secret)
	if text := story(r.calls("run_s", 6)); strings.Contains(text, "very-secret") {
		t.Error("the credential is in the run")
	}
	found := 0
	for i := range r.nats.Partitions {
		stream, err := r.nats.JS.Stream(t.Context(), natskit.StreamName(i))
		if err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			msg, err := stream.GetMsg(t.Context(), seq)
			if err != nil {
				continue // not there
			}
			found++
			if text := fmt.Sprint(msg.Subject, msg.Header, string(msg.Data)); strings.Contains(text, "very-secret") {
				t.Errorf("the credential is stored: %.500s", text)
			}
		}
	}
	if found == 0 {
		t.Error("no message was looked at")
	}
	if strings.Contains(r.said.String(), "very-secret") {
		t.Errorf("the credential is logged:\n%s", r.said)
	}
}
