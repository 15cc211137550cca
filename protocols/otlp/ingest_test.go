package otlp_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"

	spans "agentstream/adapters/otlp"
	"agentstream/protocols/otlp"
	"agentstream/schema"
)

// chat is a span of a model call: a question and its answer, or a call of a tool.
func chat(id string, n, parent, from, to int, question, answer, call string) *trace.Span {
	out := fmt.Sprintf(`[{"role":"assistant","finish_reason":"stop","parts":[{"type":"text","content":%q}]}]`, answer)
	if call != "" {
		out = fmt.Sprintf(`[{"role":"assistant","finish_reason":"tool_call","parts":[{"type":"text","content":%q},`+
			`{"type":"tool_call","id":%q,"name":"look","arguments":{"n":%d}}]}]`, answer, call, n)
	}
	return spanOf(id, n, parent, from, to, "chat m", "gen_ai.operation.name", "chat", "gen_ai.provider.name", "openai",
		"gen_ai.response.model", "m-1",
		"gen_ai.response.id", fmt.Sprintf("r-%d", n), "gen_ai.usage.input_tokens", 10+n, "gen_ai.usage.output_tokens", 5,
		"gen_ai.input.messages", fmt.Sprintf(`[{"role":"user","parts":[{"type":"text","content":%q}]}]`, question),
		"gen_ai.output.messages", out)
}

// generate makes the spans of a trace: an agent with model calls, tools and agents below it, at random.
func generate(r *rand.Rand, id string) (list []*trace.Span) {
	n := 1
	var agent func(parent, from, deep int) int
	agent = func(parent, from, deep int) int {
		own := n
		n++
		at := from
		at++
		for range 1 + r.IntN(3) {
			call := ""
			if r.IntN(2) == 0 {
				call = fmt.Sprintf("call-%d", n)
			}
			list = append(list, chat(id, n, own, at, at+5, fmt.Sprintf("question %d", n), fmt.Sprintf("answer %d", n), call))
			n++
			at += 6
			if call == "" {
				continue
			}
			tool := n
			n++
			end := at + 3
			if deep < 2 && r.IntN(2) == 0 {
				end = agent(tool, at+1, deep+1) + 1
			}
			list = append(list, spanOf(id, tool, own, at, end, "execute_tool look", "gen_ai.operation.name",
				"execute_tool", "gen_ai.tool.name", "look",
				"gen_ai.tool.call.id", call, "gen_ai.tool.call.result", fmt.Sprintf("result %d", tool)))
			at = end + 1
		}
		list = append(list, spanOf(id, own, parent, from, at+1, "invoke_agent a", "gen_ai.operation.name",
			"invoke_agent", "gen_ai.agent.name", fmt.Sprintf("a%d", own)))
		return at + 1
	}
	agent(0, 0, 0)
	return list
}

// TestOrderDoesNotMatter sends the spans of generated traces in any order, in any number of requests, twice, and to
// nodes that are replaced between. The run says the same, and no span is stored twice.
func TestOrderDoesNotMatter(t *testing.T) {
	w := newWorld(t)
	for seed := range 24 {
		r := rand.New(rand.NewPCG(1, uint64(seed)))
		id := traceID(1 + 2*seed)
		list := generate(r, id)
		w.send(list...)
		w.settle(id)
		want := w.story(id)
		if strings.Count(want, schema.TypeMessageEnd) == 0 ||
			!strings.HasSuffix(want, "run.lifecycle {\"state\":\"done\"}\n") {
			t.Fatalf("seed %d: %s", seed, want)
		}
		other := traceID(2 + 2*seed)
		again := generate(rand.New(rand.NewPCG(1, uint64(seed))), other)
		again = append(again, again[:len(again)/2]...)
		r.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		for len(again) > 0 {
			n := 1 + r.IntN(len(again))
			w.send(again[:n]...)
			if r.IntN(3) == 0 {
				w.send(again[:n]...)
			}
			if r.IntN(6) == 0 {
				w.restart()
			}
			again = again[n:]
		}
		w.settle(other)
		w.settle(other)
		if got := w.story(other); got != strings.ReplaceAll(want, id, other) {
			t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, got, want)
		}
		if n := w.count(other, spans.Type); n != len(list) {
			t.Errorf("seed %d: %d spans are stored of %d", seed, n, len(list))
		}
	}
}

// TestLateSpansMakeAnotherRound has a model call that comes when its trace is settled: the run goes on and ends again.
func TestLateSpansMakeAnotherRound(t *testing.T) {
	w := newWorld(t)
	id := traceID(7)
	root := spanOf(id, 1, 0, 0, 100, "invoke_agent a", "gen_ai.operation.name", "invoke_agent")
	first, late := chat(id, 2, 1, 1, 5, "one", "first", ""), chat(id, 3, 1, 6, 9, "two", "second", "")
	w.send(root, first)
	w.settle(id)
	before := w.story(id)
	w.send(late, first)
	if n := w.count(id, spans.Type); n != 3 {
		t.Errorf("%d spans are stored of 3", n)
	}
	w.settle(id)
	more, ok := strings.CutPrefix(w.story(id), before)
	if !ok || strings.Count(more, schema.TypeMessageStart) != 2 || strings.Contains(more, "first") ||
		!strings.Contains(more, `"second"`) {
		t.Errorf("%s", more)
	}
	list := w.events(id)
	if last := list[len(list)-1]; last.Type != schema.TypeRunLifecycle || !strings.Contains(string(last.Payload), "done") {
		t.Errorf("the run ends with %s %s", last.Type, last.Payload)
	}
}

// TestSettleAfterADeath has a settler that dies after each of its appends, and others that go on.
func TestSettleAfterADeath(t *testing.T) {
	w := newWorld(t)
	list := generate(rand.New(rand.NewPCG(3, 5)), traceID(1))
	w.send(list...)
	w.settle(traceID(1))
	want := w.story(traceID(1))
	other := generate(rand.New(rand.NewPCG(3, 5)), traceID(2))
	w.send(other...)
	key := schema.RunKey{Tenant: "acme", Run: spans.RunPrefix + traceID(2)}
	for range 200 {
		w.nodes.Log.Once(func() { w.nodes.Log.Once(func() { panic("dead") }) })
		if !dies(func() { _, _ = w.settler.Settle(t.Context(), key) }) {
			break
		}
		w.restart()
	}
	w.nodes.Log.Once(func() {})
	w.settle(traceID(2))
	if got := w.story(traceID(2)); got != strings.ReplaceAll(want, traceID(1), traceID(2)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// dies reports whether fn panics.
func dies(fn func()) (dead bool) {
	defer func() { dead = recover() != nil }()
	fn()
	return false
}

// TestTwoSettlers has two nodes settle a trace at the same time.
func TestTwoSettlers(t *testing.T) {
	w := newWorld(t)
	list := generate(rand.New(rand.NewPCG(9, 9)), traceID(1))
	w.send(list...)
	one := w.settler
	w.restart()
	key := schema.RunKey{Tenant: "acme", Run: spans.RunPrefix + traceID(1)}
	done := make(chan error)
	for _, s := range []*otlp.Settler{one, w.settler} {
		go func() {
			_, err := s.Settle(t.Context(), key)
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	got := w.story(traceID(1))
	w.send(generate(rand.New(rand.NewPCG(9, 9)), traceID(2))...)
	w.settle(traceID(2))
	if want := w.story(traceID(2)); got != strings.ReplaceAll(want, traceID(2), traceID(1)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestBadInput has what exporters should not send.
func TestBadInput(t *testing.T) {
	w := newWorld(t)
	id := traceID(5)
	good := spanOf(id, 1, 0, 0, 1, "GET /")
	noID, zeros, short := spanOf(id, 2, 1, 0, 1, "x"), spanOf(id, 3, 1, 0, 1, "x"), spanOf(id, 4, 1, 0, 1, "x")
	noID.SpanId, zeros.TraceId, short.SpanId = nil, make([]byte, 16), short.SpanId[:7]
	resp, text := w.post(encode(t, noID, good, zeros, short))
	if resp.StatusCode != 200 || !strings.Contains(text, "3 refused: a span has no trace id") {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
	if n := w.count(id, spans.Type); n != 1 {
		t.Errorf("%d spans are stored of 1", n)
	}
	jsonBody := `{"resourceSpans":[{"later":1,"scopeSpans":[{"spans":[{"traceId":"` + strings.ToUpper(traceID(171)) +
		`","spanId":"00000000000000aB","name":"x","kind":3,` +
		`"startTimeUnixNano":"1","endTimeUnixNano":2,"attributes":[{"key":"n","value":{"intValue":"7"}}]},{"traceId":"` + traceID(171) + `","spanId":""}]}]}]}`
	resp, text = w.post(zip([]byte(jsonBody)), "Content-Type", "application/json", "Content-Encoding", "gzip")
	if want := `{"partialSuccess":{"rejectedSpans":"1","errorMessage":"1 refused: ` +
		"a span has no trace id of 16 bytes, or no span id of 8" + `"}}`; resp.StatusCode != 200 ||
		strings.TrimSpace(text) != want {
		t.Errorf("%d %q, want %q", resp.StatusCode, text, want)
	}
	if list := w.events(traceID(171)); len(list) != 2 ||
		!strings.Contains(string(list[1].Payload), `"span_id":"00000000000000ab"`) ||
		!strings.Contains(string(list[1].Payload), `{"n":7}`) {
		t.Errorf("%v", list)
	}
	for name, tt := range map[string]struct {
		body   string
		header []string
		status int
	}{
		"no protobuf": {"\xff\xff", nil, 400},
		"no JSON":     {"{", []string{"Content-Type", "application/json"}, 400},
		"a list":      {"[]", []string{"Content-Type", "application/json; charset=utf-8"}, 400},
		"other type":  {"x", []string{"Content-Type", "text/plain"}, 415},
		"no gzip":     {"x", []string{"Content-Encoding", "gzip"}, 400},
		"stranger":    {"", []string{"Test-Caller", "nobody"}, 401},
		"reader":      {"", []string{"Test-Caller", "may:read"}, 403},
	} {
		resp, text := w.post([]byte(tt.body), tt.header...)
		if resp.StatusCode != tt.status || message(resp, text) == "" {
			t.Errorf("%s: %d %s %q, want %d", name, resp.StatusCode, resp.Header.Get("Content-Type"), text, tt.status)
		}
	}
	if resp, text := w.post(nil); resp.StatusCode != 200 || text != "" {
		t.Errorf("an empty request: %d %q", resp.StatusCode, text)
	}
}

// message is the text of a google.rpc.Status, in the form that the answer says.
func message(resp *http.Response, text string) string {
	if resp.Header.Get("Content-Type") == "application/json" {
		var s struct {
			Code    int
			Message string
		}
		_ = json.Unmarshal([]byte(text), &s)
		return s.Message
	}
	b := []byte(text)
	_, _, n := protowire.ConsumeField(b)
	if n < 0 {
		return ""
	}
	num, _, k := protowire.ConsumeTag(b[n:])
	said, m := protowire.ConsumeString(b[n+k:])
	if num != 2 || m < 0 {
		return ""
	}
	return said
}

// TestLargeAttributes has a value that no event holds: its beginning is kept, and what is missing is said.
func TestLargeAttributes(t *testing.T) {
	w := newWorld(t)
	id := traceID(5)
	s := chat(id, 1, 0, 0, 1, "hello", "there", "")
	s.Attributes = append(s.Attributes, spanOf(id, 1, 0, 0, 1, "", "huge", strings.Repeat("\x01é", 2<<20)).Attributes...)
	w.send(s)
	w.settle(id)
	list := w.events(id)
	var p struct {
		Attributes map[string]any
		Omitted    []string
		Bytes      int `json:"omitted_bytes"`
	}
	if err := json.Unmarshal(list[1].Payload, &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Omitted) != 1 || p.Omitted[0] != "huge" || p.Bytes < 4<<20 || len(p.Attributes["huge"].(string)) < 10<<10 {
		t.Errorf("%v, %d bytes", p.Omitted, p.Bytes)
	}
	if story := w.story(id); !strings.Contains(story, "hello") || !strings.Contains(story, "there") {
		t.Error(story)
	}
}

// TestClocks has a tool whose machine is an hour behind, and one an hour ahead: the call comes after the message that
// asks for it.
func TestClocks(t *testing.T) {
	w := newWorld(t)
	const hour = 3_600_000
	for i, off := range []int{-hour, hour} {
		id := traceID(1 + i)
		w.send(spanOf(id, 1, 0, 0, 100, "a", "gen_ai.operation.name", "invoke_agent"), chat(id, 2, 1, 10, 20, "q", "a", "c1"),
			spanOf(id, 3, 1, 30+off, 40+off, "t", "gen_ai.operation.name", "execute_tool", "gen_ai.tool.name", "look",
				"gen_ai.tool.call.id", "c1", "gen_ai.tool.call.result", "r"),
			chat(id, 4, 1, 50, 60, "q", "b", ""))
		w.settle(id)
		var types []string
		for _, e := range w.events(id) {
			if strings.HasPrefix(e.Type, "tool.") || e.Type == schema.TypeModelStart {
				types = append(types, e.Type)
			}
		}
		got := strings.Join(types, " ")
		if !strings.HasPrefix(got, "model.start tool.start") || strings.Count(got, "tool.start") != 1 ||
			!strings.Contains(got, "tool.run tool.end") {
			t.Errorf("%d ms off: %s", off, got)
		}
	}
}

// TestTraceOfManySpans has a trace that is too large: what is refused is said, and the neighbours do not notice.
func TestTraceOfManySpans(t *testing.T) {
	w := newWorld(t)
	id := traceID(5)
	refused := 0
	for i := range 6 {
		var list []*trace.Span
		for j := range 2000 {
			list = append(list, spanOf(id, 1+2000*i+j, 0, 0, 1, "x"))
		}
		resp, text := w.post(encode(t, list...))
		if resp.StatusCode != 200 {
			t.Fatalf("%d %q", resp.StatusCode, text)
		}
		if strings.Contains(text, "2000 refused: a trace keeps 10,000 spans") {
			refused++
		}
	}
	if n := w.count(id, spans.Type); n != 10_000 || refused != 1 {
		t.Errorf("%d spans are stored, %d requests refused", n, refused)
	}
	w.send(spanOf(traceID(6), 1, 0, 0, 1, "x"))
}

// TestUnknownConventions has spans that say nothing of models: they are kept, and the run has an end.
func TestUnknownConventions(t *testing.T) {
	w := newWorld(t)
	id := traceID(5)
	s := spanOf(id, 1, 0, 0, 1, "GET /", "http.route", "/", "gen_ai.operation.name", "dream")
	s.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR, Message: "no"}
	w.send(s)
	w.settle(id)
	list := w.events(id)
	if len(list) != 4 || list[1].Type != spans.Type || list[2].Type != otlp.MarkType ||
		string(list[3].Payload) != `{"state":"error","reason":"no"}` {
		t.Errorf("%v", list)
	}
}

// TestRootIsWaitedFor has a trace without its root: it is not complete yet.
func TestRootIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	id := traceID(5)
	w.send(chat(id, 2, 1, 0, 1, "q", "a", ""))
	s := otlp.NewSettler(otlp.SettlerConfig{Log: w.nodes.Log, Settle: time.Minute})
	next, err := s.Settle(t.Context(), schema.RunKey{Tenant: "acme", Run: spans.RunPrefix + id})
	if wait := time.Until(next); err != nil || wait < 50*time.Minute || wait > 61*time.Minute {
		t.Error(wait, err)
	}
}
