package openai

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// told is what a stream comes to, in one line.
func told(t *testing.T, d *provider.Decoder, body string) string {
	t.Helper()
	events := providertest.Decode(t, d, []byte(body))
	checkEvents(t, events)
	var out []string
	for _, e := range events {
		p, _ := provider.Parse(e.Payload)
		switch e.Type {
		case schema.TypeToolStart:
			out = append(out, p.Str("call_id")+" "+p.Str("tool")+string(p.Get("input")))
		case schema.TypeMessageEnd:
			for _, raw := range provider.Elements(p.Get("content")) {
				b, _ := provider.Parse(raw)
				switch late := b.Str("late_id"); {
				case late != "":
					out = append(out, "late "+late)
				case b.Str("type") != "tool_use":
					out = append(out, b.Str("type")+":"+b.Str("text")+b.Str("thinking"))
				}
			}
			out = append(out, strings.Trim(p.Str("stop_reason")+" "+string(p.Get("usage")), " "))
		}
	}
	return strings.Join(out, ", ")
}

// TestBrokenChat: each kind of break that services have, in small.
func TestBrokenChat(t *testing.T) {
	call := func(members string) string { return delta(`"tool_calls":[{` + members + `}]`) }
	fn := func(index int, id, name, args string) string {
		return call(fmt.Sprintf(`"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":%q}`, index, id,
			name, args))
	}
	more := func(index int, args string) string {
		return call(fmt.Sprintf(`"index":%d,"function":{"arguments":%q}`, index, args))
	}
	every := func(members string) string {
		return chunk(`{"index":0,"delta":{` + members + `},"finish_reason":"stop"}`)
	}
	usage := `{"prompt_tokens":3,"total_tokens":5}`
	end := finish("tool_calls")
	for name, tt := range map[string]struct {
		frames []string
		want   string
	}{
		"id changes": {[]string{fn(0, "a", "f", ""),
			call(`"index":0,"id":"b","function":{"arguments":"{\"x\""}`),
			call(`"index":0,"id":"c","function":{"arguments":":1}"}`), end}, `a f{"x":1}, late c, tool_use`},
		"id null": {[]string{fn(0, "a", "f", "{"),
			call(`"index":0,"id":"null","function":{"arguments":"}"}`), end}, `a f{}, tool_use`},
		"another index": {[]string{fn(0, "a", "f", ""), more(1, "{"), more(1, "}"), fn(1, "b", "g", ""),
			more(2, "{}"), end}, `a f{}, b g{}, tool_use`},
		"index 0, no ids": {[]string{fn(0, "", "f", "{}"), fn(0, "", "f", `{"x":1}`), fn(0, "", "g", "{}"), end},
			`call_c1_0 f{}, call_c1_1 f{"x":1}, call_c1_2 g{}, tool_use`},
		"id of two calls": {[]string{fn(0, "a", "f", "{}"), fn(1, "a", "f", `{"x":1}`), end},
			`a f{}, a f{"x":1}, tool_use`},
		"name in two pieces": {[]string{call(`"index":0,"id":"a","type":"function","function":{"name":"read_","arguments":""}`), call(`"index":0,"function":{"name":"file","arguments":""}`), more(0, "{}"), end}, `a read_file{}, tool_use`},
		"name grows": {[]string{call(`"index":0,"id":"a","function":{"name":"read_"}`),
			call(`"index":0,"function":{"name":"read_file"}`), more(0, "{}"), end}, `a read_file{}, tool_use`},
		"name always": {[]string{fn(0, "a", "f", "{"),
			call(`"index":0,"id":"a","function":{"name":"f","arguments":"}"}`), end}, `a f{}, tool_use`},
		"call doubled":   {[]string{fn(0, "a", "f", "{}"), fn(0, "a", "f", "{}"), end}, `a f{}, tool_use`},
		"both spellings": {[]string{delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}],"function_call":{"name":"f","arguments":"{}"}`), end}, `a f{}, tool_use`},
		"reason on all": {[]string{every(`"reasoning_content":"Let me "`), every(`"reasoning_content":"think."`),
			every(`"content":"Hel"`), every(`"content":"lo."`),
			every(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]`),
			every(`"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]`)},
			`a f{}, thinking:Let me think., text:Hello., tool_use`},
		"reason, then more": {[]string{delta(`"content":"Hel"`), finish("stop"), delta(`"content":"lo."`),
			finish("stop")}, `text:Hello., end_turn`},
		"message again": {[]string{delta(`"content":"Hel"`), delta(`"content":"lo."`),
			`{"id":"c1","object":"chat.completion","model":"m","usage":` + usage +
				`,"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello."}}]}`},
			`text:Hello., end_turn ` + usage},
		"message has more": {[]string{delta(`"content":"Hel"`),
			`{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello."}}]}`}, `text:Hello., end_turn`},
		"calls again": {[]string{fn(0, "a", "f", "{}"), fn(1, "b", "f", "{}"),
			`{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"tool_calls":[{"id":"z","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]}}]}`}, `a f{}, b f{}, late z, tool_use`},
		"usage in the choice": {[]string{delta(`"content":"Hi"`),
			chunk(`{"index":0,"delta":{},"finish_reason":"stop","usage":` + usage + `}`)}, `text:Hi, end_turn ` + usage},
		"usage of a vendor": {[]string{delta(`"content":"Hi"`), finish("stop"),
			`{"id":"c1","x_vendor":{"usage":` + usage + `}}`}, `text:Hi, end_turn ` + usage},
		"usage empty behind": {[]string{delta(`"content":"Hi"`), finish("stop"),
			`{"id":"c1","choices":[],"usage":` + usage + `}`,
			`{"id":"c1","choices":[],"usage":{"prompt_tokens":0,"total_tokens":0}}`,
			`{"id":"c1","choices":[],"usage":{"total_tokens":4}}`}, `text:Hi, end_turn ` + usage},
		"input behind the end": {[]string{fn(0, "a", "f", ""), finish("stop"), more(0, "{}"), finish("tool_calls")},
			`a f{}, tool_use`},
		"[DONE] alone": {[]string{fn(0, "a", "f", "{}"), done}, `a f{}, tool_use`},
		"[DONE] amid":  {[]string{fn(0, "a", "f", "{"), done}, ``},
	} {
		t.Run(name, func(t *testing.T) {
			if got := told(t, NewChatDecoder(provider.Config{}), sse(tt.frames...)); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestBrokenResponses: the same of Responses.
func TestBrokenResponses(t *testing.T) {
	added := func(index int, item string) string {
		return ev("output_item.added", fmt.Sprintf(`"output_index":%d,"item":%s`, index, item))
	}
	ended := func(index int, item string) string {
		return ev("output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, index, item))
	}
	item := func(id, call, args string) string {
		return fmt.Sprintf(`{"id":%q,"type":"function_call","call_id":%q,"name":"f","arguments":%q}`, id, call, args)
	}
	args := func(id string, index int, text string) string {
		return ev("function_call_arguments.delta", fmt.Sprintf(`"item_id":%q,"output_index":%d,"delta":%q`, id, index, text))
	}
	final := func(output string) string {
		return strings.Replace(completed, `"model"`, `"output":[`+output+`],"model"`, 1)
	}
	use := `tool_use {"input_tokens":1.0}`
	thought := `{"id":"r","type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}]}`
	for name, tt := range map[string]struct {
		frames []string
		want   string
	}{
		"one output_index": {[]string{created, added(0, `{"id":"r","type":"reasoning","summary":[]}`),
			ended(0, thought), added(0, item("i", "a", "")), args("i", 0, "{}"), ended(0, item("i", "a", "{}")),
			final("")}, `a f{}, thinking:Hm., ` + use},
		"two open at once": {[]string{created, added(0, item("i", "a", "")), added(0, item("j", "b", "")),
			args("i", 0, `{"x":`), args("j", 0, `{}`), args("i", 0, `1}`), final("")}, `a f{"x":1}, b f{}, ` + use},
		"no indexes": {[]string{created,
			`{"type":"response.output_item.added","item":` + item("i", "a", "") + `}`,
			`{"type":"response.function_call_arguments.delta","delta":"{}"}`,
			`{"type":"response.output_item.done","item":` + item("i", "a", "{}") + `}`, completed}, `a f{}, ` + use},
		"call_id at the end": {[]string{created, added(0, item("i", "a", "")), args("i", 0, "{}"),
			ended(0, item("i", "a", "{}")), final(item("i", "z", "{}"))}, `a f{}, late z, ` + use},
		"items twice": {[]string{created, added(0, item("i", "a", "")), ended(0, item("i", "a", "{}")),
			ended(0, item("i", "a", "{}")), final(item("i", "a", "{}")), final(item("i", "a", "{}"))}, `a f{}, ` + use},
		"[DONE] alone": {[]string{created, added(0, item("i", "a", "")), ended(0, item("i", "a", "{}")), done},
			`a f{}, tool_use`},
		"type in the name": {[]string{created,
			"\n\nevent: response.output_item.done\ndata: " + `{"item":` + item("i", "a", "{}") + `}`, completed},
			`a f{}, ` + use},
	} {
		t.Run(name, func(t *testing.T) {
			if got := told(t, NewResponsesDecoder(provider.Config{}), sse(tt.frames...)); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestResponseInTheMaking: a response that waits has not failed, and neither has the call.
func TestResponseInTheMaking(t *testing.T) {
	for status, damage := range map[string]bool{"queued": false, "in_progress": false, "odd": true} {
		var o provider.Outcome
		w := provider.NewWriter(Provider, provider.Config{})
		w.Custom("response", provider.Fields{{Name: "status", Value: provider.Quote(status)}})
		for _, e := range w.Drain() {
			o.See(&e)
		}
		if got := o.Damage() != ""; got != damage {
			t.Errorf("%s: %q", status, o.Damage())
		}
	}
}

// TestOneID: calls of one message that all have the same id are told apart by their places, in whatever order their
// pieces come.
func TestOneID(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 34))
		tools := []string{"f", "f", "g", "h"}
		var lanes [][]string
		var want []string
		for i := range 2 + r.IntN(3) {
			tool, args := tools[r.IntN(len(tools))], fmt.Sprintf(`{"call":%d}`, i)
			want = append(want, "x "+tool+args)
			cut := r.IntN(len(args))
			id := []string{"", `"id":"x",`}[r.IntN(2)]
			piece := func(id, text string) string {
				return delta(fmt.Sprintf(`"tool_calls":[{"index":%d,%s"function":{"arguments":%q}}]`, i, id, text))
			}
			first := fmt.Sprintf(`"tool_calls":[{"index":%d,"id":"x","type":"function","function":{"name":%q,"arguments":""}}]`, i, tool)
			lanes = append(lanes, []string{delta(first), piece(id, args[:cut]), piece(id, args[cut:])})
		}
		var frames []string
		for at, together := 0, r.IntN(2) == 0; len(lanes) > 0; {
			if together { // else one call after the other
				at = r.IntN(len(lanes))
			}
			frames = append(frames, lanes[at][0])
			if lanes[at] = lanes[at][1:]; len(lanes[at]) == 0 {
				lanes = slices.Delete(lanes, at, at+1)
			}
		}
		body := sse(append(frames, finish("tool_calls"), done)...)
		got := strings.Split(told(t, NewChatDecoder(provider.Config{}), body), ", ")
		slices.Sort(got)
		want = append(want, "tool_use")
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %q, want %q\n%s", seed, got, want, body)
		}
	}
}
