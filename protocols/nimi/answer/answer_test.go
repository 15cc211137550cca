package answer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/adapters/model"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/producers/worker"
	"agentstream/protocols/nimi/answer"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

// shop is a real log with a worker that answers with a set.
type shop struct {
	t        *testing.T
	log      *natsjs.Log
	appender *producers.Appender
}

func newShop(t *testing.T, set answer.Models) *shop {
	t.Helper()
	s := &shop{t: t}
	var err error
	if s.log, err = natsjs.Open(t.Context(), testkit.NATS(t).Conn); err != nil {
		t.Fatal(err)
	}
	if s.appender, err = producers.NewAppender(producers.AppenderConfig{Log: s.log}); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	w, err := worker.New(worker.Config{Log: s.log, Waker: s.log, Attend: s.log.Attend, Ask: s.log.Ask, Answer: set.Answer, Reasons: answer.Reasons(), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for _, run := range []func() error{
		func() error { return w.Run(ctx) },
		func() error { return s.log.Follow(ctx, natsjs.FollowConfig{Name: "answer", Logger: logger}, w.Receive) },
		func() error { return set.Announce(ctx, s.log, nil, []string{"acme"}, logger) },
	} {
		group.Go(func() {
			if err := run(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); group.Wait() })
	return s
}

// ask begins a run that is answered once. more are fields of session.created, message those of the command.
func (s *shop) ask(run, more, message string) {
	s.t.Helper()
	more = strings.NewReplacer("\n", "", "\t", "").Replace(more)
	_, err := s.appender.Append(s.t.Context(), schema.RunKey{Tenant: "acme", Run: run}, []schema.Event{
		{Type: schema.TypeSessionCreated, Actor: "user", Payload: json.RawMessage(`{"once":true` + more + `}`)},
		{Type: schema.TypeCommandMessage, Actor: "user", Payload: json.RawMessage(message)},
	}, producers.AppendOptions{Whole: true})
	if err != nil {
		s.t.Fatal(err)
	}
}

// events returns a run.
func (s *shop) events(run string) (out []schema.Event) {
	s.t.Helper()
	for p, err := range s.log.Since(s.t.Context(), schema.RunKey{Tenant: "acme", Run: run}, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				s.t.Fatal(err)
			}
			e, err := r.Event()
			if err != nil {
				s.t.Fatal(err)
			}
			out = append(out, e)
		}
	}
	return out
}

// ended waits for the end of a run, and returns its events and its state with the reason.
func (s *shop) ended(run string) ([]schema.Event, string) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		all := s.events(run)
		if len(all) == 0 || all[len(all)-1].Type != schema.TypeRunLifecycle {
			continue
		}
		var f struct{ State, Reason string }
		if err := json.Unmarshal(all[len(all)-1].Payload, &f); err != nil {
			s.t.Fatal(err)
		}
		return all, strings.TrimSpace(f.State + " " + f.Reason)
	}
	s.t.Fatalf("%s has not ended", run)
	return nil, ""
}

func words(_ context.Context, q *worker.Question) (string, error) {
	m, err := q.Turn.Message(producers.MessageInfo{})
	if err != nil {
		return "", err
	}
	if err := m.Text("re: " + q.Text()); err != nil {
		return "", err
	}
	return "", m.End("end_turn", nil)
}

// The nodes of a workflow are played in the order of their edges, one task each, and hand on their texts.
func TestWorkflow(t *testing.T) {
	set := answer.Models{Set: &model.Set{}}
	model.Scripted(set.Set, words, 0)
	s := newShop(t, set)
	s.ask("w1", `,"model":"demo","runtime":{"as":"workflow","workflow":{"nodes":[
		{"node_id":"last","node_type":"WORKFLOW_NODE_AI_STREAM","ai_stream_config":{"prompt":"say {{said}}"}},
		{"node_id":"middle","node_type":"WORKFLOW_NODE_TRANSFORM_TEMPLATE","template_config":{"template":"<{{first}}>"},"depends_on":["first"]},
		{"node_id":"none","node_type":"WORKFLOW_NODE_CONTROL_NOOP","depends_on":["middle"]},
		{"node_id":"first","node_type":"WORKFLOW_NODE_AI_GENERATE","ai_generate_config":{"model_id":"demo"}}],
		"edges":[{"from_node_id":"none","to_node_id":"last","to_input":"said"}]}}`, `{"content":"hello"}`)
	events, end := s.ended("w1")
	if end != "done" {
		t.Fatalf("ended %q", end)
	}
	var tasks []string
	for _, e := range events {
		var f struct {
			ID     string `json:"task_id"`
			Output struct{ Text string }
		}
		if err := json.Unmarshal(e.Payload, &f); err != nil {
			t.Fatal(err)
		}
		if e.Type == schema.TypeTaskEnd {
			tasks = append(tasks, f.ID+" "+f.Output.Text)
		}
	}
	want := []string{"first re: hello", "middle <re: hello>", "none <re: hello>", "last re: say <re: hello>"}
	if !slices.Equal(tasks, want) {
		t.Errorf("tasks %q, want %q", tasks, want)
	}
	for run, c := range map[string][2]string{
		"cycle":  {`{"node_id":"a","node_type":"WORKFLOW_NODE_CONTROL_NOOP","depends_on":["b"]},{"node_id":"b","node_type":"WORKFLOW_NODE_CONTROL_NOOP","depends_on":["a"]}`, "error WF_DAG_INVALID"},
		"script": {`{"node_id":"a","node_type":"WORKFLOW_NODE_TRANSFORM_SCRIPT"}`, "error WF_NODE_CONFIG_MISMATCH"},
		"fails":  {`{"node_id":"a","node_type":"WORKFLOW_NODE_AI_STREAM","ai_stream_config":{"model_id":"demo/fail"}}`, "error AI_PROVIDER_INTERNAL: the scripted"},
	} {
		s.ask(run, `,"runtime":{"workflow":{"nodes":[`+c[0]+`]}}`, `{"content":"hello"}`)
		if _, end := s.ended(run); !strings.HasPrefix(end, c[1]) {
			t.Errorf("%s: ended %q", run, end)
		}
	}
}

// What goes wrong has the protocol's code before its words, and the models are announced to the tenant.
func TestReasons(t *testing.T) {
	set := answer.Models{Set: &model.Set{}}
	model.Scripted(set.Set, words, 0)
	kinds := map[string]struct {
		kind model.Kind
		want string
	}{
		"input": {model.BadInput, "AI_INPUT_INVALID"}, "limited": {model.Limited, "AI_PROVIDER_RATE_LIMITED"},
		"timeout": {model.Timeout, "AI_PROVIDER_TIMEOUT"}, "unavailable": {model.Unavailable, "AI_PROVIDER_UNAVAILABLE"},
		"broken": {model.Broken, "AI_STREAM_BROKEN"}, "internal": {model.Internal, "AI_PROVIDER_INTERNAL"},
	}
	wants := map[string]string{"none": "error AI_MODEL_NOT_FOUND: no model", "plain": "error it failed", "silent": "error AI_PROVIDER_TIMEOUT: no delta within 100ms",
		"open": "error AI_STREAM_BROKEN: "}
	for name, c := range kinds {
		wants[name] = "error " + c.want + ": it failed"
		set.Add("p", func(context.Context, *worker.Question) (string, error) {
			return "", fmt.Errorf("it failed: %w", &model.Error{Kind: c.kind, Err: errors.New("so")})
		}, name)
	}
	set.Add("p", func(context.Context, *worker.Question) (string, error) { return "", errors.New("it failed") }, "plain")
	set.Add("p", func(ctx context.Context, _ *worker.Question) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}, "silent")
	set.Add("p", func(_ context.Context, q *worker.Question) (string, error) {
		_, err := q.Turn.Message(producers.MessageInfo{})
		return "", err
	}, "open")
	s := newShop(t, set)
	for name, want := range wants {
		more := fmt.Sprintf(`,"model":%q`, name)
		if name == "silent" {
			more += `,"deadlines":{"first_ms":100}`
		}
		s.ask(name, more, `{"content":"hello"}`)
		if _, end := s.ended(name); !strings.HasPrefix(end, want) {
			t.Errorf("%s: ended %q, want %q", name, end, want)
		}
	}
	announced := s.events("runtime-provider")
	if len(announced) == 0 || announced[0].Type != "custom.runtime.provider" || !strings.Contains(string(announced[0].Payload), `"demo/slow"`) {
		t.Errorf("the feed of providers is %v", announced)
	}
}

// A session is served where all its models are.
func TestServes(t *testing.T) {
	set := answer.Models{Set: &model.Set{}}
	model.Scripted(set.Set, words, 0)
	for session, want := range map[string]bool{
		`{"model":"demo"}`: true, `{"model":"gone"}`: false, `{}`: false, `nonsense`: false,
		`{"runtime":{"workflow":7}}`: true, // it fails with words
		`{"model":"demo","runtime":{"workflow":{"nodes":[{"ai_stream_config":{}}]}}}`:                       true,
		`{"model":"gone","runtime":{"workflow":{"nodes":[{"ai_stream_config":{}}]}}}`:                       false,
		`{"model":"gone","runtime":{"workflow":{"nodes":[{"ai_generate_config":{"model_id":"demo"}},{}]}}}`: true,
		`{"model":"demo","runtime":{"workflow":{"nodes":[{"ai_generate_config":{"model_id":"gone"}}]}}}`:    false,
	} {
		if got := set.Serves(json.RawMessage(session)); got != want {
			t.Errorf("%s is served: %v", session, got)
		}
	}
}
