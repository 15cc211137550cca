package answer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentstream/adapters/model"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/producers/worker"
	"agentstream/producers/worker/workertest"
	"agentstream/protocols/nimi/answer"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

func newShop(t *testing.T, set answer.Models) *workertest.Shop {
	t.Helper()
	return workertest.New(t, worker.Config{Answer: set.Answer, Reasons: answer.Reasons()},
		func(ctx context.Context, log *natsjs.Log, logger *slog.Logger) error {
			return set.Announce(ctx, log, nil, []string{workertest.Tenant}, logger)
		})
}

// The nodes of a workflow are played in the order of their edges, one task each, and hand on their texts.
func TestWorkflow(t *testing.T) {
	set := answer.Models{Set: &model.Set{}}
	model.AddScripted(set.Set, workertest.Echo, 0)
	s := newShop(t, set)
	s.Ask("w1", `,"model":"demo","runtime":{"as":"workflow","workflow":{"nodes":[
		{"node_id":"last","node_type":"WORKFLOW_NODE_AI_STREAM","ai_stream_config":{"prompt":"say {{said}}"}},
		{"node_id":"middle","node_type":"WORKFLOW_NODE_TRANSFORM_TEMPLATE","template_config":{"template":"<{{first}}>"},"depends_on":["first"]},
		{"node_id":"none","node_type":"WORKFLOW_NODE_CONTROL_NOOP","depends_on":["middle"]},
		{"node_id":"first","node_type":"WORKFLOW_NODE_AI_GENERATE","ai_generate_config":{"model_id":"demo"}}],
		"edges":[{"from_node_id":"none","to_node_id":"last","to_input":"said"}]}}`, `{"content":"hello"}`)
	events, end := s.Await("w1")
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
		"fails": {`{"node_id":"a","node_type":"WORKFLOW_NODE_AI_STREAM","ai_stream_config":{"model_id":"demo/fail"}}`,
			"error AI_PROVIDER_INTERNAL: the scripted"},
	} {
		s.Ask(run, `,"runtime":{"workflow":{"nodes":[`+c[0]+`]}}`, `{"content":"hello"}`)
		if _, end := s.Await(run); !strings.HasPrefix(end, c[1]) {
			t.Errorf("%s: ended %q", run, end)
		}
	}
}

// What goes wrong has the protocol's code before its words, and the models are announced to the tenant.
func TestReasons(t *testing.T) {
	set := answer.Models{Set: &model.Set{}}
	model.AddScripted(set.Set, workertest.Echo, 0)
	kinds := map[string]struct {
		kind model.Kind
		want string
	}{
		"input": {model.BadInput, "AI_INPUT_INVALID"}, "limited": {model.Limited, "AI_PROVIDER_RATE_LIMITED"},
		"timeout": {model.Timeout, "AI_PROVIDER_TIMEOUT"}, "unavailable": {model.Unavailable, "AI_PROVIDER_UNAVAILABLE"},
		"broken": {model.Broken, "AI_STREAM_BROKEN"}, "internal": {model.Internal, "AI_PROVIDER_INTERNAL"},
	}
	wants := map[string]string{"none": "error AI_MODEL_NOT_FOUND: no model", "plain": "error it failed",
		"silent": "error AI_PROVIDER_TIMEOUT: no delta within 100ms",
		"open":   "error AI_STREAM_BROKEN: "}
	for name, c := range kinds {
		wants[name] = "error " + c.want + ": it failed"
		set.Add("p", func(context.Context, *worker.Task) (string, error) {
			return "", fmt.Errorf("it failed: %w", &model.Error{Kind: c.kind, Err: errors.New("so")})
		}, name)
	}
	set.Add("p", func(context.Context, *worker.Task) (string, error) { return "", errors.New("it failed") }, "plain")
	set.Add("p", func(ctx context.Context, _ *worker.Task) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}, "silent")
	set.Add("p", func(_ context.Context, q *worker.Task) (string, error) {
		_, err := q.Turn.Message(producers.MessageInfo{})
		return "", err
	}, "open")
	s := newShop(t, set)
	for name, want := range wants {
		more := fmt.Sprintf(`,"model":%q`, name)
		if name == "silent" {
			more += `,"deadlines":{"first_ms":100}`
		}
		s.Ask(name, more, `{"content":"hello"}`)
		if _, end := s.Await(name); !strings.HasPrefix(end, want) {
			t.Errorf("%s: ended %q, want %q", name, end, want)
		}
	}
	announced := s.Events("runtime-provider")
	if len(announced) == 0 || announced[0].Type != "custom.runtime.provider" ||
		!strings.Contains(string(announced[0].Payload), `"demo/slow"`) {
		t.Errorf("the feed of providers is %v", announced)
	}
}

// A session is served where all its models are.
func TestServes(t *testing.T) {
	set := answer.Models{Set: &model.Set{}}
	model.AddScripted(set.Set, workertest.Echo, 0)
	for session, want := range map[string]bool{
		`{"model":"demo"}`: true, `{"model":"gone"}`: false, `{}`: false, `nonsense`: false,
		`{"runtime":{"workflow":7}}`: true, // it fails with words
		`{"model":"demo","runtime":{"workflow":{"nodes":[{"ai_stream_config":{}}]}}}`:                       true,
		`{"model":"gone","runtime":{"workflow":{"nodes":[{"ai_stream_config":{}}]}}}`:                       false,
		`{"model":"gone","runtime":{"workflow":{"nodes":[{"ai_generate_config":{"model_id":"demo"}},{}]}}}`: true,
		`{"model":"demo","runtime":{"workflow":{"nodes":[{"ai_generate_config":{"model_id":"gone"}}]}}}`:    false,
	} {
		if got := set.CanServe(json.RawMessage(session)); got != want {
			t.Errorf("%s is served: %v", session, got)
		}
	}
}
