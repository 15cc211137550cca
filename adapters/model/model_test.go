package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/gemini/geminitest"
	"agentstream/adapters/model"
	"agentstream/adapters/openai/openaitest"
	"agentstream/producers"
	"agentstream/producers/worker"
	"agentstream/producers/worker/workertest"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

func newShop(t *testing.T, set *model.Set) *workertest.Shop {
	t.Helper()
	return workertest.New(t, worker.Config{Answer: withKind(set.Answer)})
}

// withKind puts the kind of a model's error before its text.
func withKind(answer worker.Answer) worker.Answer {
	return func(ctx context.Context, q *worker.Task) (string, error) {
		stop, err := answer(ctx, q)
		var e *model.Error
		if errors.As(err, &e) {
			return stop, fmt.Errorf("%s: %w", kinds[e.Kind], err)
		}
		return stop, err
	}
}

var kinds = map[model.Kind]string{
	model.Internal: "internal", model.BadInput: "bad input", model.NotFound: "not found", model.Limited: "limited",
	model.Timeout: "timeout", model.Unavailable: "unavailable", model.Broken: "broken",
}

func fold(events []schema.Event) *schema.Fold {
	f := new(schema.Fold)
	for i := range events {
		f.Add(&events[i])
	}
	return f
}

func text(events []schema.Event) string {
	var b strings.Builder
	for _, m := range fold(events).Messages {
		if m.Role == "user" {
			continue
		}
		for _, block := range m.Blocks {
			if block.Kind == "text" {
				b.WriteString(block.Text.String())
			}
		}
	}
	return b.String()
}

func words(_ context.Context, q *worker.Task) (string, error) {
	m, err := q.Turn.Message(producers.MessageInfo{})
	if err != nil {
		return "", err
	}
	if err := m.Text("re: " + q.Text()); err != nil {
		return "", err
	}
	return "", m.End("end_turn", nil)
}

// Each scripted model does what its name says.
func TestScripted(t *testing.T) {
	set := &model.Set{}
	model.AddScripted(set, words, 0)
	s := newShop(t, set)
	for name, want := range map[string]string{
		"demo": "done", "demo/fail": "error internal: ", "demo/slow": "done", "demo/long": "done", "demo/speech": "done",
		"demo/silent": "error no delta within 100ms", "demo/none": "error not found: ",
	} {
		run := strings.ReplaceAll(name, "/", "_")
		first := 60000
		if name == "demo/silent" {
			first = 100
		}
		s.Ask(run, fmt.Sprintf(`,"model":%q,"deadlines":{"first_ms":%d}`, name, first), `{"content":"three little words"}`)
		events, end := s.Await(run)
		if !strings.HasPrefix(end, want) {
			t.Errorf("%s: ended %q, want %q", name, end, want)
		}
		n := map[string]int{}
		for i := range events {
			n[events[i].Type]++
		}
		switch said := text(events); {
		case name == "demo" && said != "re: three little words",
			name == "demo/fail" && n[schema.TypeTextDelta] != 1,
			name == "demo/slow" && n[schema.TypeProgress] != 8,
			name == "demo/long" && len(said) != 4<<20,
			name == "demo/silent" && said != "",
			name == "demo/speech" && n[schema.TypeDataDelta] != 3:
			t.Errorf("%s: %v, %d bytes of text", name, n, len(said))
		}
	}
}

// key must be nowhere but in the header of requests.
const key = "sk-a-credential-that-nobody-sees"

// upstream serves recordings by the name of the model, and notes the requests.
func upstream(t *testing.T, api string, serve http.HandlerFunc) *model.Upstream {
	t.Helper()
	srv := httptest.NewServer(serve)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	up, err := model.NewUpstream(api, u, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	return up
}

// Every recorded answer of a provider, through a worker, is what the provider's own libraries make of it: text,
// reasoning, calls, usage and stop reason. A failed one ends the run in error.
func TestRecordings(t *testing.T) {
	type recording struct {
		api    string
		check  func(t *testing.T, e []schema.Event)
		failed bool
	}
	all := map[string]recording{}
	messages, read := anthropictest.Recordings(t)
	bodies := map[string][]byte{}
	for name, w := range messages {
		all[name] = recording{"anthropic", func(t *testing.T, e []schema.Event) { anthropictest.Check(t, e, w) },
			w.Error != nil}
		bodies[name] = read(name)
	}
	chats, read := openaitest.Recordings(t)
	for name, w := range chats {
		api := "openai-responses"
		if openaitest.Chat(name) {
			api = "openai"
		}
		all[name] = recording{api, func(t *testing.T, e []schema.Event) { openaitest.Check(t, name, e) }, w.Error != nil}
		bodies[name] = read(name)
	}
	answers, read := geminitest.Recordings(t)
	for name := range answers {
		all[name] = recording{"gemini", func(t *testing.T, e []schema.Event) { geminitest.Check(t, name, e) }, false}
		bodies[name] = read(name)
	}
	set := &model.Set{}
	for _, api := range []string{"openai", "openai-responses", "anthropic", "gemini"} {
		up := upstream(t, api, func(w http.ResponseWriter, r *http.Request) {
			var f struct{ Model string }
			if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
				t.Error(err)
			}
			name := f.Model
			if api == "gemini" {
				name, _, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1beta/models/"), ":")
			}
			_, _ = w.Write(bodies[name])
		})
		for name, r := range all {
			if r.api == api {
				set.Add(up.Provider(), up.Answer, name)
			}
		}
	}
	s := newShop(t, set)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			run := "rec_" + strings.NewReplacer("/", "_", ".", "_").Replace(name)
			s.Ask(run, fmt.Sprintf(`,"model":%q`, name), `{"content":"hello"}`)
			events, end := s.Await(run)
			var answer []schema.Event
			for _, e := range events {
				switch {
				case e.TurnID == "", e.Type == schema.TypeTurnStart, e.Type == schema.TypeTurnEnd, e.Type == schema.TypeCommandsTaken,
					e.Type == schema.TypeModelStart, e.Type == schema.TypeModelEnd,
					e.Type == schema.TypeToolEnd && strings.Contains(string(e.Payload), `the client carries it out`):
				default:
					answer = append(answer, e)
				}
			}
			all[name].check(t, answer)
			if failed := all[name].failed; failed != (end != "done") {
				t.Errorf("ended %q", end)
			}
		})
	}
}

// What goes wrong with a provider is the reason of the run's end, and neither that nor anything else has the
// credential.
func TestUpstreamFails(t *testing.T) {
	const sse = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"half\"}}]}\n\n"
	var mu sync.Mutex
	var bodies []string
	up := upstream(t, "openai", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		bodies = append(bodies, string(b))
		mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+key || r.URL.Path != "/v1/chat/completions" {
			t.Errorf("asked at %s with %q", r.URL, r.Header)
		}
		var f struct{ Model string }
		if err := json.Unmarshal(b, &f); err != nil {
			t.Error(err)
		}
		var status int
		switch _, _ = fmt.Sscanf(f.Model, "m%d", &status); status {
		case 0:
			_, _ = io.WriteString(w, sse)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 302:
			w.Header().Set("Location", "/v1/elsewhere")
		case 1:
			_, _ = io.WriteString(w, sse)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":{"message":"refused: `+key+`"}}`)
	})
	set := &model.Set{}
	cases := map[string]string{
		"m0": "broken: ", "m1": "no delta for 300ms", "m302": "unavailable: ", "m400": "bad input: ", "m401": "unavailable: ",
		"m404": "not found: ", "m429": "limited: ", "m500": "internal: ", "m503": "unavailable: ", "m504": "timeout: ",
	}
	set.Add("openai", up.Answer, slices.Collect(maps.Keys(cases))...)
	s := newShop(t, set)
	for name, want := range cases {
		s.Ask(name, fmt.Sprintf(`,"model":%q,"system":"be kind","parameters":{"temperature":0.5,"max_tokens":7},"tools":[{"name":"look_up"}],"deadlines":{"idle_ms":300}`, name),
			`{"content":"last","messages":[{"role":"user","content":"first"},{"role":"assistant","content":"yes"},{"role":"user","content":[{"type":"text","text":"last"},{"type":"image_url","url":"http://x/y.png"}]}]}`)
		events, end := s.Await(name)
		if !strings.HasPrefix(end, "error "+want) {
			t.Errorf("%s: ended %q, want %s", name, end, want)
		}
		for _, e := range events {
			if strings.Contains(string(e.Payload), key) {
				t.Errorf("%s: %s has the credential: %s", name, e.Type, e.Payload)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(bodies) != len(cases) {
		t.Errorf("asked %d times for %d runs", len(bodies), len(cases))
	}
	for _, want := range []string{`{"content":"be kind","role":"system"}`, `{"content":"first","role":"user"}`,
		`"max_completion_tokens":7`, `"temperature":0.5`,
		`{"image_url":{"url":"http://x/y.png"},"type":"image_url"}`, `"name":"look_up"`} {
		if !strings.Contains(bodies[0], want) {
			t.Errorf("%s is not in %s", want, bodies[0])
		}
	}
}
