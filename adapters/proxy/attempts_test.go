package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentstream/adapters/proxy"
	"agentstream/schema"
)

// hold is how long failures wait in these tests, beside the time that clients wait.
const hold = 300 * time.Millisecond

// flaky fails as a request's header says, with a status each.
func flaky() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		var status int
		if _, err := fmt.Sscan(req.Header.Get("X-Status"), &status); err != nil {
			says("fine").ServeHTTP(w, req)
			return
		}
		for _, name := range []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"} {
			if v := req.Header.Get("Test-" + name); v != "" {
				w.Header().Set(name, v)
			}
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"e","message":"not now"}}`)
	})
}

func holding(c *proxy.Config) { c.RetryHold = hold }

const question = `{"messages":[{"role":"user","content":"hi"}]}`

// summary is what people see of a run: its states, and its model calls with their ends.
func summary(t *testing.T, events []schema.Event) string {
	t.Helper()
	var parts []string
	for _, e := range events {
		var p struct {
			State, Role string
			OK          bool
			Attempts    int
			Attempt     int
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case schema.TypeRunLifecycle:
			parts = append(parts, p.State)
		case schema.TypeMessageStart:
			parts = append(parts, p.Role)
		case schema.TypeModelStart:
			parts = append(parts, "call")
		case proxy.TypeAttempt:
			parts = append(parts, fmt.Sprint("failed ", p.Attempt))
		case schema.TypeModelEnd:
			parts = append(parts, fmt.Sprint("end ", p.OK, p.Attempts))
		}
	}
	return strings.Join(parts, ", ")
}

// TestRepeats: a call that its client repeats is one call, and its failures do not end the run.
func TestRepeats(t *testing.T) {
	r := start(t, flaky(), holding)
	for i, c := range []struct {
		statuses []string
		headers  []string
		want     string
	}{
		{[]string{"529", ""}, nil, "running, user, call, failed 1, assistant, end true 2, done"},
		{[]string{"408", "409", "429", "500", ""}, nil,
			"running, user, call, failed 1, failed 2, failed 3, failed 4, assistant, end true 5, done"},
		{[]string{"503", "503", "503"}, nil, "running, user, call, failed 1, failed 2, failed 3, assistant, end false 3, error"},
		{[]string{"429"}, []string{"Test-Retry-After-Ms", "10"},
			"running, user, call, failed 1, assistant, end false 0, error"},
		{[]string{"401"}, nil, "running, user, call, assistant, end false 0, error"},
		{[]string{"529"}, []string{"Test-X-Should-Retry", "false"}, "running, user, call, assistant, end false 0, error"},
		{[]string{"400", ""}, []string{"Test-X-Should-Retry", "true"},
			"running, user, call, failed 1, assistant, end true 2, done"},
	} {
		run := fmt.Sprint("run_", i)
		for n, status := range c.statuses {
			r.post("/v1/messages", question, append(c.headers, proxy.HeaderRun, run, proxy.HeaderEnd, "done",
				"X-Status", status, "X-Stainless-Retry-Count", fmt.Sprint(n))...)
		}
		events := r.ended(run)
		framed(t, events)
		if got := summary(t, events); got != c.want {
			t.Errorf("%v: %s\nwant %s", c.statuses, got, c.want)
		}
	}
	if l := r.losses(); len(l) > 0 {
		t.Errorf("%+v", l)
	}
}

// TestRepeatThatComesSlowly: a repeat that has come in time is one, although it is whole only after the wait.
func TestRepeatThatComesSlowly(t *testing.T) {
	r := start(t, flaky(), holding)
	headers := http.Header{proxy.HeaderRun: {"run"}, proxy.HeaderEnd: {"done"}}
	r.post("/v1/messages", question, proxy.HeaderRun, "run", proxy.HeaderEnd, "done", "X-Status", "529",
		"Test-Retry-After-Ms", "1")
	body, rest := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/messages", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = headers
	answered := make(chan error, 1)
	go func() {
		resp, err := r.http.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		answered <- err
	}()
	_, _ = io.WriteString(rest, question[:10])
	time.Sleep(2 * hold)
	_, _ = io.WriteString(rest, question[10:])
	rest.Close()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if got := summary(t, r.ended("run")); got != "running, user, call, failed 1, assistant, end true 2, done" {
		t.Error(got)
	}
}

// TestCutIsRepeated: libraries that read an answer whole repeat a call whose answer breaks off, or takes too long. The
// two are one call, whose messages have ids of their own.
func TestCutIsRepeated(t *testing.T) {
	up := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "application/json")
		whole := `{"candidates":[{"content":{"parts":[{"text":"good day"}],"role":"model"},"finishReason":"STOP"}]}`
		switch req.Header.Get("X-Status") {
		case "cut":
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, whole[:50])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "stream":
			w.Header().Set("Content-Type", sse)
			_, _ = io.WriteString(w, "data: "+strings.Replace(whole, `,"finishReason":"STOP"`, "", 1)+"\n\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "slow":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-req.Context().Done()
		default:
			_, _ = io.WriteString(w, whole)
		}
	})
	r := start(t, up, holding)
	const path, ask = "/v1beta/models/m:generateContent", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
	for how, want := range map[string]string{
		"cut":    "running, user, call, failed 1, assistant, end true 2, done",
		"stream": "running, user, call, assistant, failed 1, assistant, end true 2, done",
		"slow":   "running, user, call, failed 1, assistant, end true 2, done",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		headers := []string{proxy.HeaderRun, how, proxy.HeaderEnd, "done"}
		resp, err := r.open(ctx, path, ask, append(headers, "X-Status", how)...)
		if err == nil {
			if how == "slow" {
				cancel()
			}
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: the answer is whole", how)
		}
		cancel()
		r.until(how, func(e []schema.Event) bool { return count(e, proxy.TypeAttempt) == 1 })
		r.post(path, ask, append(headers, "X-Stainless-Retry-Count", "1")...)
		events := r.ended(how)
		framed(t, events)
		if got := summary(t, events); got != want {
			t.Errorf("%s: %s\nwant %s", how, got, want)
		}
		ids := map[string]bool{}
		for _, e := range events {
			var p struct {
				ID string `json:"message_id"`
			}
			if err := json.Unmarshal(e.Payload, &p); err != nil || e.Type == schema.TypeMessageStart && ids[p.ID] {
				t.Errorf("%s: %s stands for two messages (%v)", how, p.ID, err)
			}
			ids[p.ID] = true
		}
	}
}

// TestRepeatIsAwaited: the run does not end while the client waits as long as it was told, whatever else is called.
func TestRepeatIsAwaited(t *testing.T) {
	r := start(t, flaky(), holding)
	began := time.Now()
	r.post("/v1/messages", question, proxy.HeaderRun, "run_w", proxy.HeaderEnd, "done", "X-Status", "429",
		"Test-Retry-After", "1")
	r.post("/v1/messages", `{"messages":[{"role":"user","content":"a title"}]}`, proxy.HeaderRun, "run_w")
	r.calls("run_w", 1)
	for time.Since(began) < time.Second {
		if e := r.events("run_w"); count(e, schema.TypeRunLifecycle) > 1 {
			t.Fatalf("ended after %s:\n%s", time.Since(began), story(e))
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.post("/v1/messages", question, proxy.HeaderRun, "run_w", proxy.HeaderEnd, "done")
	events := r.ended("run_w")
	framed(t, events)
	want := "running, user, call, failed 1, user, call, assistant, end true 0, assistant, end true 2, done"
	if got := summary(t, events); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestRepeatElsewhere: a repeat that comes to another proxy is what counts.
func TestRepeatElsewhere(t *testing.T) {
	r := start(t, flaky(), holding)
	second := r.another()
	r.post("/v1/messages", question, proxy.HeaderRun, "run_e", proxy.HeaderEnd, "done", "X-Status", "500")
	r.until("run_e", func(e []schema.Event) bool { return count(e, proxy.TypeAttempt) == 1 })
	second.post("/v1/messages", question, proxy.HeaderRun, "run_e", proxy.HeaderEnd, "done")
	events := r.ended("run_e")
	time.Sleep(hold + time.Second) // the first has given up
	if after := r.events("run_e"); len(after) != len(events) {
		t.Errorf("behind the end: %s", story(after[len(events):]))
	}
	if got, want := summary(t, events), "running, user, call, failed 1, call, assistant, end true 0, done"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if l := r.losses(); len(l) > 0 {
		t.Errorf("%+v", l)
	}
}

// TestRepeatAtShutdown: what waits for a repeat is recorded when the proxy ends.
func TestRepeatAtShutdown(t *testing.T) {
	r := start(t, flaky(), func(c *proxy.Config) { c.RetryHold = time.Minute })
	r.post("/v1/messages", question, proxy.HeaderRun, "run_s", proxy.HeaderEnd, "done", "X-Status", "500")
	r.until("run_s", func(e []schema.Event) bool { return count(e, proxy.TypeAttempt) == 1 })
	r.stop()
	events := r.events("run_s")
	if got, want := summary(t, events), "running, user, call, failed 1, assistant, end false 0, error"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestRepeatsUnread: where requests are not read, the client's count says what is a repeat.
func TestRepeatsUnread(t *testing.T) {
	r := start(t, flaky(), holding, func(c *proxy.Config) { c.Requests = proxy.RequestsNone })
	r.post("/v1/messages", question, proxy.HeaderRun, "run_u", proxy.HeaderEnd, "done", "X-Status", "500")
	r.post("/v1/messages", question, proxy.HeaderRun, "run_u", proxy.HeaderEnd, "done", "X-Stainless-Retry-Count", "1")
	if got, want := summary(t, r.ended("run_u")), "running, call, failed 1, assistant, end true 2, done"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
