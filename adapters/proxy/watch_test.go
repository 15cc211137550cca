package proxy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"agentstream/adapters/provider"
	"agentstream/adapters/proxy"
	"agentstream/schema"
)

// background is an upstream with one response that is made in the background.
type background struct{ status atomic.Value }

func (b *background) response() string {
	output := `[]`
	if b.status.Load() == "completed" {
		output = `[{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"pong","annotations":[]}]}]`
	}
	return fmt.Sprintf("{\n  \"id\": \"resp_1\",\n  \"object\": \"response\",\n  \"background\": true,\n  \"model\": \"m\",\n  \"status\": %q,\n  \"output\": %s\n}", b.status.Load(), output)
}

// frames is the stream of the response.
func (b *background) frames() []string {
	return []string{
		`{"type":"response.created","response":{"id":"resp_1","object":"response","status":"in_progress","model":"m"}`,
		`{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}`,
		`{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"po"`,
		`{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"ng"`,
		`{"type":"response.completed","response":` + b.response(),
	}
}

func (b *background) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if strings.HasSuffix(r.URL.Path, "/cancel") && b.status.Load() != "completed" {
		b.status.Store("cancelled")
	}
	if r.URL.Query().Get("stream") != "true" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, b.response())
		return
	}
	w.Header().Set("Content-Type", sse)
	after, err := strconv.Atoi(r.URL.Query().Get("starting_after"))
	if err != nil {
		after = -1
	}
	for i, frame := range b.frames() {
		if i <= after {
			continue
		}
		fmt.Fprintf(w, "data: %s,\"sequence_number\":%d}\n\n", strings.ReplaceAll(frame, "\n", ""), i)
		w.(http.Flusher).Flush()
		if i == 2 && r.URL.Query().Get("cut") != "" {
			panic(http.ErrAbortHandler)
		}
	}
}

// get asks for something, whatever becomes of it.
func (r *rig) get(path string, headers ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // the answer may be cut
	return resp
}

// asker is a client that asks for the response in many ways.
type asker struct {
	*rig
	up      *background
	run     string
	headers []string
	trail   []string
}

// ask asks once more. The response is made when somebody asks for its end.
func (a *asker) ask(what string) {
	const path = "/v1/responses/resp_1"
	a.trail = append(a.trail, what)
	if a.up.status.Load() == "queued" && what != "poll" && what != "restart" && what != "other" {
		a.up.status.Store(map[bool]string{true: "in_progress", false: "completed"}[what == "cancel"])
	}
	streamed := map[string]string{"stream": "", "rest": "&starting_after=2", "cut": "&cut=1"}
	query, isStream := streamed[what]
	switch {
	case isStream && a.up.status.Load() == "cancelled":
	case isStream:
		a.get(path+"?stream=true"+query, a.headers...)
	case what == "cancel":
		a.post(path+"/cancel", "{}", a.headers...)
	case what == "other":
		a.get("/v1/responses/resp_2/input_items", a.headers...)
	case what == "restart" && a.headers != nil:
		a.stop()
		a.rig = begin(a.t, &rig{t: a.t, nats: a.nats, log: a.log, said: a.said}, a.upstreams)
	case what != "restart":
		if got := a.get(path, a.headers...).Header.Get(proxy.HeaderRun); got != a.run {
			a.t.Errorf("the run of a poll is %q, want %q", got, a.run)
		}
	}
}

// recorded returns the whole answers in the run.
func (a *asker) recorded() (whole []string) {
	for _, e := range a.events(a.run) {
		all, _ := provider.Parse(e.Payload)
		if e.Type == schema.TypeMessageEnd && e.Actor != "user" && all.Get("incomplete") == nil {
			var content []struct{ Text string }
			_ = json.Unmarshal(all.Get("content"), &content)
			whole = append(whole, fmt.Sprint(cmp.Or(all.Str("response_id"), all.Str("message_id")), content))
		}
	}
	return whole
}

// TestBackgroundResponses: a response that is made in the background is in the run of the request for it, once, however
// often and in whatever way it is asked for, and whichever proxy is asked.
func TestBackgroundResponses(t *testing.T) {
	ways := []string{"poll", "poll", "poll", "end", "stream", "rest", "cut", "cancel", "restart", "other"}
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 34))
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			up := &background{}
			up.status.Store("queued")
			a := &asker{rig: start(t, up), up: up}
			if seed%2 == 0 { // else the run has no name
				a.headers = []string{proxy.HeaderRun, "run_bg"}
			}
			if seed%4 == 0 {
				a.headers = append(a.headers, proxy.HeaderChild, "run_child")
			}
			resp, _ := a.post("/v1/responses", `{"model":"m","background":true,"input":"ping"}`, a.headers...)
			a.run = resp.Header.Get(proxy.HeaderRun)
			a.calls(a.run, 1)
			for range 2 + rng.IntN(8) {
				a.ask(ways[rng.IntN(len(ways))])
			}
			a.ask("end")
			a.stop()
			want := []string{"resp_1[{pong}]"}
			if up.status.Load() == "cancelled" {
				want = []string{"resp_1[]"}
			}
			events := a.events(a.run)
			if whole := a.recorded(); !slices.Equal(whole, want) {
				t.Errorf("%v: recorded is %v, want %v\n%s", a.trail, whole, want, story(events))
			}
			framed(t, events)
		})
	}
}

// TestUnnamedAnswers: answers without ids have different ones in one run, and so have their calls.
func TestUnnamedAnswers(t *testing.T) {
	answer := `{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"f","args":{"n":1}}}]},"finishReason":"STOP"}]}`
	r := start(t, replay([]byte(answer), "application/json"))
	for i := range 3 {
		body := fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":"question %d"}]}]}`, i)
		r.post("/v1beta/models/g:generateContent", body, proxy.HeaderRun, "run_unnamed")
	}
	seen := map[string]int{}
	for _, e := range r.calls("run_unnamed", 3) {
		all, _ := provider.Parse(e.Payload)
		switch e.Type {
		case schema.TypeMessageStart:
			seen[all.Str("message_id")]++
		case schema.TypeToolStart:
			seen[all.Str("call_id")]++
		}
	}
	for id, n := range seen {
		if n > 1 {
			t.Errorf("%s is the id of %d", id, n)
		}
	}
	if len(seen) != 9 { // questions, answers, calls
		t.Errorf("ids %v", seen)
	}
}
