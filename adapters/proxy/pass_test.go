package proxy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/adapters/proxy"
	"agentstream/internal/testkit/sentence"
	"agentstream/schema"
)

// seen is an upstream that remembers what it was asked.
type seen struct {
	mu     sync.Mutex
	reqs   []*http.Request
	bodies []string
	serve  http.Handler
}

func (s *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.reqs, s.bodies = append(s.reqs, r), append(s.bodies, string(body))
	s.mu.Unlock()
	s.serve.ServeHTTP(w, r)
}

func (s *seen) all() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reqs
}

func says(text string) http.Handler { return replay([]byte(answer("msg_1", text)), sse) }

// TestGeneratedRun: without headers a call is a run of its own, whose id the answer tells.
func TestGeneratedRun(t *testing.T) {
	up := &seen{serve: says("hello")}
	r := start(t, up)
	resp, got := r.post("/v1/messages", `{"model":"claude","messages":[{"role":"user","content":"hi \u00e9"}]}`,
		"X-Api-Key", "k", "Connection", "X-Hop", "X-Hop", "1")
	if string(got) != answer("msg_1", "hello") || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != sse {
		t.Errorf("%s %q", resp.Status, got)
	}
	events := r.ended(resp.Header.Get(proxy.HeaderRun))
	framed(t, events)
	var types []string
	for _, e := range events {
		types = append(types, e.Type)
	}
	want := "run.lifecycle message.start block.start text.delta block.end message.end model.start message.start block.start text.delta block.end message.end model.end run.lifecycle"
	if got := strings.Join(types, " "); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	mustContain(t, story(events), `"text":"hi \u00e9"`, `"model":"claude"`, `"ok":true`, `"status":200`,
		`"state":"done"`, `"role":"user"`)
	req := up.all()[0]
	if req.Header.Get("X-Api-Key") != "k" || req.Header.Get("X-Hop") != "" || req.Header.Get("X-Forwarded-For") != "" ||
		req.Header.Get("Accept-Encoding") != "identity" {
		t.Errorf("the upstream saw %v", req.Header)
	}
	if d := r.outcomes(); len(d) != 1 || d[0].Outcome != proxy.OutcomeOK || !d[0].Recorded ||
		d[0].Received != int64(len(got)) || d[0].Sent == 0 {
		t.Errorf("%+v", d)
	}
}

// TestNamedRun: a named run goes on over calls and ends when a header says so; children have lanes.
func TestNamedRun(t *testing.T) {
	up := &seen{serve: says("x")}
	r := start(t, up)
	resp, _ := r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_1", proxy.HeaderTurn, "t1")
	if resp.Header.Get(proxy.HeaderRun) != "run_1" {
		t.Errorf("answer's header %v", resp.Header)
	}
	r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_1", proxy.HeaderChild, "run_1_c", proxy.HeaderEnd, "done")
	r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_1", proxy.HeaderTenant, "acme", proxy.HeaderEnd, "done")
	for _, req := range up.all() {
		for name := range req.Header {
			if strings.HasPrefix(name, "Agentstream") {
				t.Errorf("the upstream saw %s", name)
			}
		}
	}
	events := r.ended("run_1")
	framed(t, events)
	if count(events, schema.TypeMessageEnd) != 3 {
		t.Errorf("events\n%s", story(events))
	}
	var states, turns []string
	for _, e := range events {
		if e.Type == schema.TypeRunLifecycle {
			l, _ := schema.ParseLifecycle(e.Payload)
			states = append(states, e.ChildID+":"+string(l.State))
		}
		if e.ChildID != "" && (len(e.Path) != 2 || e.Path[0] != "run_1") {
			t.Errorf("path %v", e.Path)
		}
		if e.Type == schema.TypeTextDelta && e.ChildID == "" { // lanes are stored each for itself, calls of a lane in order
			turns = append(turns, e.TurnID)
		}
	}
	if len(turns) != 2 || turns[0] != "t1" || turns[1] != "" {
		t.Errorf("turns %q", turns)
	}
	if got := strings.Join(states, " "); got != ":running run_1_c:running run_1_c:done :done" {
		t.Error(got)
	}
	if count(events, schema.TypeChildSpawn) != 1 {
		t.Error("the child was not announced once")
	}
	// A call after the end is a follow-up.
	r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_1")
	framed(t, r.calls("run_1", 4))
	r.post("/v1/messages", `{}`, proxy.HeaderRun, "run_1", proxy.HeaderEnd, "aborted")
	mustContain(t, story(r.ended("run_1")[len(events):]), `"state":"running"`,
		`"state":"aborted","reason":"its caller said so"`)
}

// TestRefusedHeaders: a call that cannot be recorded as asked is not made.
func TestRefusedHeaders(t *testing.T) {
	up := &seen{serve: says("x")}
	r := start(t, up)
	for _, c := range []struct {
		status  int
		headers []string
	}{
		{403, []string{proxy.HeaderTenant, "foreign"}},
		{403, []string{proxy.HeaderTenant, ""}},
		{400, []string{proxy.HeaderRun, "a.b"}},
		{400, []string{proxy.HeaderRun, ""}},
		{400, []string{proxy.HeaderRun, "-"}},
		{400, []string{proxy.HeaderRun, strings.Repeat("x", 129)}},
		{400, []string{proxy.HeaderRun, "a", proxy.HeaderRun, "b"}},
		{400, []string{proxy.HeaderRun, "a", proxy.HeaderChild, "*"}},
		{400, []string{proxy.HeaderRun, "a", proxy.HeaderChild, "a"}},
		{400, []string{proxy.HeaderChild, "a"}},
		{400, []string{proxy.HeaderTurn, "a b"}},
		{400, []string{proxy.HeaderEnd, "running"}},
		{400, []string{"Agentstream-Runs", "a"}},
	} {
		resp, body := r.post("/v1/messages", `{}`, c.headers...)
		if resp.StatusCode != c.status || !strings.Contains(string(body), `"type":"agentstream_proxy"`) {
			t.Errorf("%v: %s %s", c.headers, resp.Status, body)
		}
		for _, message := range sentence.Of(body) {
			if err := sentence.Check(message); err != nil {
				t.Errorf("%v: %v", c.headers, err)
			}
		}
	}
	if n := len(up.all()); n != 0 {
		t.Errorf("%d calls went upstream", n)
	}
	resp, _ := r.post("/v1/messages", `{}`, proxy.HeaderTenant, "other", proxy.HeaderRun, "run_o", proxy.HeaderEnd, "done")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	for deadline := time.Now().Add(10 * time.Second); count(r.eventsOf("other", "run_o"),
		schema.TypeModelEnd) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is stored for the other tenant")
		}
	}
	if len(r.events("run_o")) != 0 {
		t.Error("the run is the first tenant's")
	}
}

// TestPassedUntouched: what is no model call passes as it is, trailers included, and is not recorded.
func TestPassedUntouched(t *testing.T) {
	up := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %s %v %s", req.Method, req.RequestURI, body, req.Header["Accept-Encoding"],
			req.Trailer.Get("X-Check"))
		w.Header().Set("X-Sum", "42")
	})
	r := start(t, up)
	req, _ := http.NewRequest(http.MethodPut, r.url+"/v1/files/a%2Fb?x=1;y=%zz&key=1",
		io.NopCloser(strings.NewReader("body")))
	req.Trailer = http.Header{"X-Check": []string{"7"}}
	req.Header.Set("Accept-Encoding", "br;q=1.0")
	resp, err := r.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, _ := io.ReadAll(resp.Body)
	if string(got) != "PUT /v1/files/a%2Fb?x=1;y=%zz&key=1 body [br;q=1.0] 7" || resp.StatusCode != http.StatusTeapot {
		t.Errorf("%s %q", resp.Status, got)
	}
	if resp.Trailer.Get("X-Sum") != "42" || len(resp.Header["Set-Cookie"]) != 2 || resp.Header.Get(proxy.HeaderRun) != "" {
		t.Errorf("%v %v", resp.Header, resp.Trailer)
	}
	if s := r.proxy.Stats(); s.Runs != 0 {
		t.Error("a run was made")
	}
	for _, path := range []string{"/v1/messages/count_tokens", "/v1/messages/batches", "/v1/responses/r/cancel",
		"/v1beta/models/x:countTokens", "/v1/embeddings"} {
		if resp, _ := r.post(path, "{}"); resp.Header.Get(proxy.HeaderRun) != "" {
			t.Errorf("%s is recorded", path)
		}
	}
}

// TestUnbuffered: each piece of the answer is with the client before the upstream says the next, and
// each piece of the request with the upstream before the client says the next.
func TestUnbuffered(t *testing.T) {
	pieces := strings.SplitAfter(answer("msg_1", "a", "b", "c"), "\n\n")
	next := make(chan bool)
	arrived := make(chan string)
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		buf := make([]byte, 100)
		for range 2 {
			n, _ := req.Body.Read(buf)
			arrived <- string(buf[:n])
		}
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", sse)
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
			<-next
		}
	}))
	body, feed := io.Pipe()
	go func() {
		for _, p := range []string{`{"model":`, `"claude"}`} {
			_, _ = io.WriteString(feed, p)
			if got := <-arrived; got != p {
				t.Errorf("the upstream read %q", got)
			}
		}
		feed.Close()
	}()
	resp, err := r.http.Post(r.url+"/v1/messages", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 4096)
	for _, p := range pieces {
		got := ""
		for len(got) < len(p) {
			n, err := resp.Body.Read(buf)
			if got += string(buf[:n]); err != nil {
				break
			}
		}
		if got != p {
			t.Fatalf("%q, want %q", got, p)
		}
		next <- true
	}
	mustContain(t, story(r.ended(resp.Header.Get(proxy.HeaderRun))), `"model":"claude"`, `"state":"done"`)
}

// TestAnswerBeforeTheRequestEnds: an answer that begins while the request is still on its way breaks
// neither of them off.
func TestAnswerBeforeTheRequestEnds(t *testing.T) {
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		buf := make([]byte, 5)
		_, _ = io.ReadFull(req.Body, buf)
		_, _ = w.Write(buf)
		w.(http.Flusher).Flush()
		_, _ = io.Copy(w, req.Body)
	}))
	for _, path := range []string{"/v1/other", "/v1/messages"} {
		body, feed := io.Pipe()
		go func() { _, _ = io.WriteString(feed, "first") }()
		resp, err := r.http.Post(r.url+path, "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 5)
		if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "first" {
			t.Fatalf("%q %v", buf, err)
		}
		go func() { _, _ = io.WriteString(feed, ", second"); feed.Close() }()
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(rest) != ", second" {
			t.Errorf("%s: %q %v", path, rest, err)
		}
	}
}

// TestUnbufferedWhole: an answer whose length is known is not held back either.
func TestUnbufferedWhole(t *testing.T) {
	next := make(chan bool)
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, `{"a":`)
		w.(http.Flusher).Flush()
		<-next
		_, _ = io.WriteString(w, `1234}`)
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	resp, err := r.open(ctx, "/v1/messages", "{}")
	if err == nil {
		defer resp.Body.Close()
		_, err = io.ReadFull(resp.Body, make([]byte, 5))
	}
	close(next)
	if err != nil {
		t.Fatalf("the first half is held back: %v", err)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "1234}" {
		t.Errorf("%q %v", rest, err)
	}
}

// TestRoutes: several upstreams are told apart by the first element of the path.
func TestRoutes(t *testing.T) {
	name := func(n string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { fmt.Fprint(w, n, " ", req.URL.Path) }))
	}
	a, b := name("a"), name("b")
	defer a.Close()
	defer b.Close()
	r := startAt(t, map[string]string{"anthropic": a.URL, "openai": b.URL + "/base/"})
	for path, want := range map[string]string{
		"/anthropic/v1/models": "a /v1/models", "/openai/v1/models": "b /base/v1/models", "/openai": "b /base/",
		"/anthropic/": "a /",
	} {
		if resp, got := r.post(path, ""); string(got) != want || resp.StatusCode != 200 {
			t.Errorf("%s: %s %s", path, resp.Status, got)
		}
	}
	for _, path := range []string{"/", "/v1/messages", "/gemini/x", "/anthropicx/v1/messages"} {
		if resp, got := r.post(path, ""); resp.StatusCode != 404 || !strings.Contains(string(got), "agentstream_proxy") {
			t.Errorf("%s: %s %s", path, resp.Status, got)
		}
	}
}

// TestHTTP2: a client that speaks HTTP/2 sees the same.
func TestHTTP2(t *testing.T) {
	r := start(t, says("over two"))
	server := httptest.NewUnstartedServer(r.proxy)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	tr := server.Client().Transport.(*http.Transport)
	tr.TLSClientConfig = &tls.Config{RootCAs: tr.TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12}
	tr.ForceAttemptHTTP2 = true
	resp, err := server.Client().Post(server.URL+"/v1/messages", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, _ := io.ReadAll(resp.Body)
	if resp.ProtoMajor != 2 || string(got) != answer("msg_1", "over two") {
		t.Errorf("%s %q", resp.Proto, got)
	}
	mustContain(t, story(r.ended(resp.Header.Get(proxy.HeaderRun))), "over two", `"state":"done"`)
}

// TestParallel: a hundred calls at once, each its own run; then a hundred in one run, whose messages do
// not lie across each other.
func TestParallel(t *testing.T) {
	texts := make([]string, 50)
	for i := range texts {
		texts[i] = fmt.Sprintf("w%d ", i)
	}
	r := start(t, replay([]byte(answer("msg_1", texts...)), sse))
	whole := []byte(answer("msg_1", texts...))
	for _, named := range []bool{false, true} {
		var group sync.WaitGroup
		ids := make([]string, 100)
		for i := range ids {
			group.Go(func() {
				var headers []string
				if named {
					headers = []string{proxy.HeaderRun, "run_shared"}
					if i%10 == 0 {
						headers = append(headers, proxy.HeaderChild, fmt.Sprintf("child_%d", i/20))
					}
				}
				resp, err := r.open(context.Background(), "/v1/messages", `{"messages":[]}`, headers...)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				ids[i] = resp.Header.Get(proxy.HeaderRun)
				if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, whole) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		}
		group.Wait()
		if named {
			events := r.calls("run_shared", 100)
			framed(t, events)
			if n := count(events, schema.TypeTextDelta); n != 100*len(texts) {
				t.Errorf("%d deltas", n)
			}
			continue
		}
		for _, id := range ids {
			if events := r.ended(id); count(events, schema.TypeTextDelta) != len(texts) {
				t.Errorf("run %s:\n%s", id, story(events))
			}
		}
	}
	if l := r.losses(); len(l) > 0 {
		t.Errorf("%v", l)
	}
}
