package redact_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/redact/redacttest"
)

func rulesOf(t testing.TB, text string) *redact.Rules {
	t.Helper()
	b, err := redact.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return b.Of("acme")
}

func quote(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// shapesOf returns payloads of control events that hold a text in the places where a producer may put it.
func shapesOf(t testing.TB, text string) map[string]schema.Event {
	q, within := quote(t, text), quote(t, quote(t, map[string]string{"key": text}))
	payloads := map[string]string{
		"message.end":          `{"message_id":"m1","content":[{"type":"text","text":` + q + `}]}`,
		"tool.start":           `{"call_id":"c1","tool":"bash","input":{"env":{"KEY":` + q + `}}}`,
		"tool.end":             `{"call_id":"c1","ok":true,"output":[1,{"id":` + q + `}]}`,
		"command.message":      `{"content":` + q + `}`,
		"state.values":         `{"values":{"a":[[` + q + `]]}}`,
		"session.created":      `{"title":` + q + `}`,
		"custom.a":             `{"deep":{"id":` + q + `}}`,
		"custom.within":        `{"json":` + within + `}`,
		"custom.name":          `{"a":{` + q + `:1}}`,
		"run.lifecycle":        `{"state":"running","reason":` + q + `}`,
		"block.end":            `{"index":0,"input":{"x":` + q + `}}`,
		"tool.output.delta":    `{"call_id":"c1","text":` + q + `}`,
		"text.delta":           `{"text":` + q + `,"index":0}`,
		"custom.escaped":       `{"x":` + eachRune(text) + `}`,
		"custom.in the middle": `{"x":` + quote(t, "say \""+text+"\", and go on") + `}`,
	}
	events := map[string]schema.Event{}
	for name, p := range payloads {
		typ, _, _ := strings.Cut(name, " ")
		events[name] = schema.Event{Type: typ, Payload: []byte(p)}
	}
	return events
}

func eachRune(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return `"` + b.String() + `"`
}

// TestKnownSecrets: no event holds a secret of a known kind, wherever it stands, and says what was hidden.
func TestKnownSecrets(t *testing.T) {
	r := rulesOf(t, redacttest.Rules)
	for seed := range uint64(8) {
		for _, s := range redacttest.Secrets(seed) {
			for name, e := range shapesOf(t, s.Text) {
				before := string(e.Payload)
				list := r.Event(&e)
				line := e.AppendLine(nil)
				if leak := redacttest.Leak(line, []redacttest.Secret{s}); leak != nil {
					t.Fatalf("%s in %s: %s", s.Kind, name, line)
				}
				if !json.Valid(line) || len(list) != 1 || list[0] != (redact.Hit{Rule: s.Rule, Count: 1}) {
					t.Fatalf("%s in %s: %v, %s", s.Kind, name, list, line)
				}
				if got := r.Event(&e); got != nil {
					t.Fatalf("%s in %s: a second pass finds %v in %s", s.Kind, name, got, before)
				}
			}
		}
	}
}

// TestWhatStays: events without secrets keep their bytes, and ids of the framing stay whatever the rules are.
func TestWhatStays(t *testing.T) {
	r := rulesOf(t, redacttest.Rules)
	for _, p := range []string{
		`{"text":"keys begin with sk-ant- or AKIA; see task-12345678901234567890","index":0}`,
		`{"text":"4111 1111 1111 1112, 1764377000000, -----BEGIN CERTIFICATE-----, eyJ"}`,
		`{"text":"pi is 3.4111111111111111 and 44111111111111111111"}`,
		`{"call_id":"c","ok":true,"output":{"n":1234567890123456}}`, "{\"text\":\"\\ud800 \\n \\\\\"}", `{}`,
	} {
		e := schema.Event{Type: "custom.x", Payload: []byte(p), Extra: []byte(`"trace":"00-4bf92f3577b34da6a3ce929d0e0e4736"`)}
		if list := r.Event(&e); list != nil || string(e.Payload) != p {
			t.Errorf("%s became %s: %v", p, e.Payload, list)
		}
	}
	all := rulesOf(t, `{"*":{"rules":[{"name":"all","pattern":"(?s).+"},{"name":"members","path":"$.*"}]}}`)
	e := schema.Event{Type: "message.end", ID: "evt_1", RunID: "r", TurnID: "t", Seq: 4, Extra: []byte(`"x":"secret"`),
		Payload: []byte(`{"message_id":"m1","stop_reason":"end_turn","content":[{"type":"tool_use","id":"toolu_1","name":"n",` +
			`"input":{"id":"b","n":7}}],"usage":{"input_tokens":5}}`)}
	all.Event(&e)
	const want = `{"id":"evt_1","ts":"","type":"message.end","run_id":"r","child_id":null,"seq":4,"turn_id":"t",` +
		`"x":"[redacted:all]","redacted":[{"rule":"all","count":7},{"rule":"members","count":1}],` +
		`"payload":{"message_id":"m1","stop_reason":"end_turn","content":[{"type":"tool_use","id":"toolu_1",` +
		`"name":"[redacted:all]","input":{"id":"[redacted:all]","n":0}}],"usage":{"input_tokens":5}}}`
	got := string(e.AppendLine(nil))
	var a, b map[string]any
	if json.Unmarshal([]byte(got), &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		t.Fatal(got)
	}
	delete(a, "redacted")
	delete(b, "redacted")
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestDividedSecrets: a secret that is cut anywhere into deltas is hidden when they come in one batch, and all other
// text stays. What comes in batches of its own is hidden from where it can be known on.
func TestDividedSecrets(t *testing.T) {
	r := rulesOf(t, redacttest.Rules)
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		for _, s := range redacttest.Secrets(seed) {
			whole := "The key is \"" + s.Text + "\", ü\n say."
			events := deltas(t, rng, whole, 1+rng.IntN(12))
			got := r.Batch(redact.Trail{}, events)
			if text := textOf(t, got.Events); text != "The key is \"[redacted:"+s.Rule+"]\", ü\n say." {
				t.Fatalf("%d %s: %q", seed, s.Kind, text)
			}
			if got.Open || len(got.Hits) != 1 || got.Hits[0].Count != 1 {
				t.Fatalf("%d %s: %+v", seed, s.Kind, got.Hits)
			}
			var trail redact.Trail
			var all []schema.Event
			for rest := events; len(rest) > 0; {
				n := 1 + rng.IntN(min(3, len(rest)))
				for n < len(rest) && r.Batch(trail, rest[:n]).Open { // as one who waits does
					n++
				}
				res := r.Batch(trail, rest[:n])
				trail, rest, all = res.Trail, rest[n:], append(all, res.Events...)
			}
			if text := textOf(t, all); text != "The key is \"[redacted:"+s.Rule+"]\", ü\n say." {
				t.Fatalf("%d %s, waiting: %q", seed, s.Kind, text)
			}
			trail, all = redact.Trail{}, nil
			for i := range events { // one by one, each decided at once
				res := r.Batch(trail, events[i:i+1])
				trail, all = res.Trail, append(all, res.Events...)
			}
			text := textOf(t, all)
			if known := s.Rule != "card" && s.Rule != "own"; known && strings.Contains(text, s.Core) {
				t.Fatalf("%d %s, at once: %q", seed, s.Kind, text)
			}
			if !strings.HasPrefix(text, "The key is \"") || !strings.HasSuffix(text, "\", ü\n say.") {
				t.Fatalf("%d %s, at once: %q", seed, s.Kind, text)
			}
		}
	}
}

// deltas cuts a text into deltas of so many bytes or less, between characters.
func deltas(t testing.TB, rng *rand.Rand, text string, most int) (events []schema.Event) {
	for len(text) > 0 {
		n := min(1+rng.IntN(most), len(text))
		for n < len(text) && text[n]&0xC0 == 0x80 {
			n++
		}
		events = append(events, schema.Event{Type: schema.TypeTextDelta,
			Payload: []byte(`{"text":` + quote(t, text[:n]) + `,"index":0}`)})
		text = text[n:]
	}
	return events
}

func textOf(t testing.TB, events []schema.Event) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		var p struct{ Text *string }
		if err := json.Unmarshal(e.Payload, &p); err != nil || p.Text == nil {
			t.Fatalf("%v: %s", err, e.Payload)
		}
		b.WriteString(*p.Text)
	}
	return b.String()
}

// TestBlocksApart: the text of a block does not go on in another one, nor in another call, child or message.
func TestBlocksApart(t *testing.T) {
	r := rulesOf(t, redacttest.Rules)
	delta := func(typ, child, rest, text string) schema.Event {
		return schema.Event{Type: typ, ChildID: child, Payload: []byte(`{"text":"` + text + `"` + rest + `}`)}
	}
	first := delta("text.delta", "", `,"index":0`, "ACME-0123456789ab")
	const more = "cdef0123456789ab"
	for name, between := range map[string][]schema.Event{
		"the same":  {delta("text.delta", "", `,"index":0`, more)},
		"index":     {delta("text.delta", "", `,"index":1`, more)},
		"child":     {delta("text.delta", "c", `,"index":0`, more)},
		"type":      {delta("reasoning.delta", "", `,"index":0`, more)},
		"block.end": {{Type: "block.end", Payload: []byte(`{"index":0}`)}, delta("text.delta", "", `,"index":0`, more)},
		"step": {{Type: "step.boundary", Payload: []byte(`{"step_index":0,"step_kind":"done"}`)},
			delta("text.delta", "", `,"index":0`, more)},
		"progress": {{Type: "progress", Payload: []byte(`{}`)}, delta("text.delta", "", `,"index":0`, more)},
	} {
		res := r.Batch(redact.Trail{}, append([]schema.Event{first}, between...))
		joined := name == "the same" || name == "progress"
		if (len(res.Hits) > 0) != joined {
			t.Errorf("%s: %+v", name, res.Hits)
		}
	}
}

// TestBadRules: a file that is not one of rules is refused, with the tenant and the rule.
func TestBadRules(t *testing.T) {
	many := strings.Repeat(`{"name":"a%d","pattern":"a"},`, 65)
	for file, want := range map[string]string{
		``: "EOF", `[]`: "cannot unmarshal", `{"*":{"rules":[]}} {}`: "more than one", `{"a b":{}}`: "tenant",
		`{"*":{"rule":[]}}`:                                         "unknown field",
		`{"*":{"rules":[{"name":"A","pattern":"a"}]}}`:              "a name is",
		`{"*":{"rules":[{"name":"a"}]}}`:                            "exactly one",
		`{"*":{"rules":[{"name":"a","pattern":"a","path":"$.a"}]}}`: "exactly one",
		`{"*":{"rules":[{"name":"a","pattern":"a*"}]}}`:             "empty text",
		`{"*":{"rules":[{"name":"a","pattern":"(?=a)"}]}}`:          "invalid",
		`{"*":{"rules":[{"name":"a","pattern":"(("}]}}`:             "missing",
		`{"*":{"rules":[{"name":"a","pattern":"((a{9}b{9}){9}){9}((a{9}b{9}){9}){9}((a{9}b{9}){9}){9}c{900}((a{9}b{9}){9}){9}((a{9}b{9}){9}){9}((a{9}b{9}){9}){9}((a{9}b{9}){9}){9}((a{9}b{9}){9}){9}((a{9}b{9}){9}){9}((a{9}b{9}){9}){9}((a{9}b{9}){9}){9}((a{9}b{9}){9}){9}"}]}}`: "instructions",
		`{"*":{"rules":[{"name":"a","pattern":"` + strings.Repeat("a", 1025) + `"}]}}`:       "1025 bytes",
		`{"*":{"rules":[{"name":"a","known":["x"]}]}}`:                                       "none of",
		`{"*":{"rules":[{"name":"a","known":["jwt"]},{"name":"b","known":["jwt"]}]}}`:        "another rule",
		`{"*":{"rules":[{"name":"a","pattern":"a"},{"name":"a","pattern":"b"}]}}`:            "twice",
		`{"*":{"rules":[{"name":"a","path":"$"}]}}`:                                          "whole payload",
		`{"*":{"rules":[{"name":"a","path":"$.a[x]"}]}}`:                                     "neither a number",
		`{"*":{"rules":[{"name":"a","path":"$..a"}]}}`:                                       "name is missing",
		`{"*":{"rules":[` + strings.TrimSuffix(fmt.Sprintf(many, numbers()...), ",") + `]}}`: "65 rules",
	} {
		_, err := redact.Parse([]byte(file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", file, err, want)
		}
	}
}

func numbers() (list []any) {
	for i := range 65 {
		list = append(list, i)
	}
	return list
}

// TestPaths: a path names what it says and nothing else.
func TestPaths(t *testing.T) {
	const payload = `{"output":{"user":{"email":"e","n":5},"list":[{"pw":"a"},{"pw":"b","x":"c"}],"a.b":"d"},"call_id":"c1"}`
	for path, want := range map[string]string{
		"$.output.user.email": `{"user":{"email":"[redacted:p]","n":5},"list":[{"pw":"a"},{"pw":"b","x":"c"}],"a.b":"d"}`,
		"output.user":         `{"user":{"email":"[redacted:p]","n":0},"list":[{"pw":"a"},{"pw":"b","x":"c"}],"a.b":"d"}`,
		"$.output.list[*].pw": `{"user":{"email":"e","n":5},"list":[{"pw":"[redacted:p]"},{"pw":"[redacted:p]","x":"c"}],"a.b":"d"}`,
		"$.output.list[1].*":  `{"user":{"email":"e","n":5},"list":[{"pw":"a"},{"pw":"[redacted:p]","x":"[redacted:p]"}],"a.b":"d"}`,
		"$.output['a.b']":     `{"user":{"email":"e","n":5},"list":[{"pw":"a"},{"pw":"b","x":"c"}],"a.b":"[redacted:p]"}`,
		"$.call_id":           `{"user":{"email":"e","n":5},"list":[{"pw":"a"},{"pw":"b","x":"c"}],"a.b":"d"}`,
	} {
		r := rulesOf(t, `{"*":{"rules":[{"name":"p","types":["tool.*"],"path":"`+path+`"}]}}`)
		e := schema.Event{Type: "tool.end", Payload: []byte(payload)}
		r.Event(&e)
		if got := string(e.Payload); got != `{"output":`+want+`,"call_id":"c1"}` {
			t.Errorf("%s: %s", path, got)
		}
		e = schema.Event{Type: "custom.x", Payload: []byte(payload)}
		if list := r.Event(&e); list != nil {
			t.Errorf("%s: it is for another type: %v", path, list)
		}
	}
}
