package provider

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"agentstream/schema"
)

func newWriter() *Writer { return &Writer{provider: "p"} }

func str(s string) json.RawMessage { return Quote(s) }

// check holds events to what the log takes.
func check(t *testing.T, events []schema.Event) {
	t.Helper()
	for i := range events {
		if err := events[i].CheckNew("run_1"); err != nil {
			t.Fatalf("event %d, %s: %v", i, events[i].Type, err)
		}
	}
}

func types(events []schema.Event) string {
	var out []string
	for _, e := range events {
		out = append(out, strings.TrimPrefix(e.Type, "custom."))
	}
	return strings.Join(out, " ")
}

func payload(t *testing.T, e schema.Event) Fields {
	t.Helper()
	if why := Problem(e.Payload); why != "" {
		t.Fatalf("%s: %s: %.200s", e.Type, why, e.Payload)
	}
	all, ok := Parse(e.Payload)
	if !ok {
		t.Fatalf("%s: %.200s", e.Type, e.Payload)
	}
	return all
}

// fail ends a message in which an error came.
func fail(m *Message, e json.RawMessage) {
	m.Fault = e
	m.End(nil)
}

// TestEndingTwice: what has ended says nothing more, whoever ends it again.
func TestEndingTwice(t *testing.T) {
	for name, again := range map[string]func(*Message, *Block){
		"block":         func(_ *Message, b *Block) { b.End(true); b.End(false) },
		"message":       func(m *Message, _ *Block) { m.End(nil); m.End(nil) },
		"abandon":       func(m *Message, _ *Block) { m.Abandon("x"); m.Abandon("y") },
		"block, behind": func(m *Message, b *Block) { m.End(nil); b.End(true) },
	} {
		w := newWriter()
		m := w.Start("m", "assistant", nil, nil)
		b := m.Begin(&Block{Kind: "text", Field: "text", Base: Fields{{"type", str("text")}}})
		b.Text(str("a"))
		again(m, b)
		m.End(nil)
		events := w.Drain()
		check(t, events)
		if got := types(events); got != "message.start block.start text.delta block.end message.end" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestResult: a result without its call has nothing to answer; one that comes twice is the machine's to
// know, and a huge id is the same in the call and its result.
func TestResult(t *testing.T) {
	w := newWriter()
	w.Result("", false, nil, "k")
	if events := w.Drain(); len(events) != 0 {
		t.Errorf("%s", types(events))
	}
	huge := strings.Repeat("ü", 5000)
	m := w.Start(huge, "", str(huge), nil)
	m.Begin(&Block{Kind: "tool_use", ToolUse: true, Call: huge, Tool: huge, CallKind: "k"}).End(true)
	w.Result(huge, true, nil, "k")
	m.End(nil)
	events := w.Drain()
	check(t, events)
	if got := types(events); got != "message.start block.start block.end tool.start tool.end message.end" {
		t.Fatal(got)
	}
	call, result := payload(t, events[3]), payload(t, events[4])
	if id := call.Str("call_id"); id != result.Str("call_id") || len(id) > maxID+100 || !strings.HasPrefix(id, "ü") {
		t.Errorf("%q and %q", id, result.Str("call_id"))
	}
	if result.Str("error") != schema.CodeToolFailed || string(result.Get("error_detail")) != "null" ||
		string(result.Get("ok")) != "false" {
		t.Errorf("%s", events[4].Payload)
	}
}

// TestMessagesSayWhoSpeaks: events of a message that is not the assistant's have its role for an actor; what lies
// between them has not.
func TestMessagesSayWhoSpeaks(t *testing.T) {
	for role, want := range map[string]string{"user": "user", "system": "system", "tool": "tool", "assistant": "",
		"robot": ""} {
		w := newWriter()
		m := w.Start("m", role, nil, nil)
		b := m.Begin(&Block{Kind: "text"})
		w.Result("c", false, nil, "k")
		b.End(true)
		m.End(nil)
		for _, e := range w.Drain() {
			if result := e.Type == schema.TypeToolEnd; result && e.Actor != "" || !result && e.Actor != want {
				t.Errorf("%s: %s is of %q", role, e.Type, e.Actor)
			}
		}
	}
}

func TestBounded(t *testing.T) {
	long := strings.Repeat("x", maxID)
	if ShortenID(long) != long || ShortenID("") != "" {
		t.Error("what is short enough changes")
	}
	a, b := ShortenID(long+"a"), ShortenID(long+"b")
	if a == b || a != ShortenID(long+"a") || len(a) > maxID {
		t.Errorf("%d bytes, %v", len(a), a == b)
	}
}

// TestNames: whatever a provider calls something, the type is one that the schema takes.
func TestNames(t *testing.T) {
	w := newWriter()
	for _, name := range []string{"", "a.b", "名\x00", strings.Repeat("x", 1000), "ok_1-2", "\xff"} {
		w.Custom(name, Fields{{"a", str("b")}})
	}
	events := w.Drain()
	check(t, events)
	if got := events[4].Type; got != "custom.p.ok_1-2" {
		t.Error(got)
	}
	if got := events[0].Type; got != "custom.p.unnamed" {
		t.Error(got)
	}
}

// TestFit: the largest members go first, and are named.
func TestFit(t *testing.T) {
	big := func(n int) json.RawMessage { return str(strings.Repeat("x", n)) }
	for _, c := range []struct {
		in      Fields
		before  string
		omitted string
		kept    string
	}{
		{Fields{{"a", big(10)}}, "", "", "a"},
		{Fields{{"a", big(maxPayload)}, {"b", big(10)}}, "", `["a"]`, "b"},
		{Fields{{"a", big(300 << 10)}, {"b", big(200 << 10)}, {"c", big(250 << 10)}}, "", `["a"]`, "b c"},
		{Fields{{"a", big(maxPayload)}, {"b", big(maxPayload - 1)}, {"c", big(1)}}, "", `["a","b"]`, "c"},
		{Fields{{"a", big(5)}}, "content", `["content"]`, "a"},
		{Fields{{"a", big(maxPayload)}, {"b", big(5)}}, "content", `["content","a"]`, "b"},
		{Fields{{strings.Repeat("n", maxPayload), big(1)}}, "", `["` + strings.Repeat("n", maxName) + `"]`, ""},
	} {
		in := append(Fields{}, c.in...)
		b := fit(c.in, c.before, 7)
		if len(b) > maxPayload {
			t.Errorf("%d bytes", len(b))
		}
		all, _ := Parse(b)
		var names []string
		for _, f := range all {
			if f.Name != "omitted" && f.Name != "omitted_bytes" {
				names = append(names, f.Name)
			}
		}
		if got := string(all.Get("omitted")); got != c.omitted || strings.Join(names, " ") != c.kept {
			t.Errorf("omitted %.80s, kept %.80s; want %.80s, %s", got, names, c.omitted, c.kept)
		}
		for i := range in {
			if in[i].Name != c.in[i].Name {
				t.Error("the caller's members were changed")
			}
		}
	}
}

// TestLongPieces: a piece of any size becomes deltas that are small enough, and the same text.
func TestLongPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	units := []string{"a", "ü", `\ud83d\ude00`, `\n`, `\\`, "😀"}
	for _, kind := range []string{"text", "reasoning", "tool_use"} {
		var inner strings.Builder
		for inner.Len() < 700<<10 {
			inner.WriteString(units[rng.IntN(len(units))])
		}
		w := newWriter()
		b := w.Start("m", "assistant", nil, nil).Begin(&Block{Kind: kind, ToolUse: kind == "tool_use", FreeText: true,
			Field: "text"})
		b.Text(Enquote([]byte(inner.String())))
		var got, want strings.Builder
		events := w.Drain()[2:]
		check(t, events)
		if len(events) < 3 {
			t.Errorf("%s: %d deltas", kind, len(events))
		}
		for _, e := range events {
			p := payload(t, e)
			got.WriteString(p.Str("text"))
			if n := len(p.Get("text")); n > maxDelta+2 {
				t.Errorf("%s: a delta of %d bytes", kind, n)
			}
			if kind == "tool_use" && p.Str("call_id") == "" {
				t.Error("a delta of a tool's input names no call")
			}
		}
		want.WriteString(Fields{{"s", Enquote([]byte(inner.String()))}}.Str("s"))
		if got.String() != want.String() {
			t.Errorf("%s: the text is another", kind)
		}
	}
}

// TestMessagesWithoutEnd: a message of any length holds no more than a little, its deltas and inputs
// stay whole, and what its end leaves out is named.
func TestMessagesWithoutEnd(t *testing.T) {
	piece := str(strings.Repeat("x", 10<<10))
	base := Fields{{"type", str("text")}, {"data", piece}}
	for name, say := range map[string]func(*Message, int){
		"one block": func(m *Message, i int) {
			if i == 0 {
				m.Begin(&Block{Kind: "text", Field: "text", Base: base[:1]})
			}
			m.Blocks[0].Text(piece)
		},
		"many blocks": func(m *Message, i int) {
			m.Begin(&Block{Index: i, Kind: "text", Field: "text", Base: append(Fields{}, base...)}).End(true)
		},
		"many citations": func(m *Message, i int) {
			m.Begin(&Block{Index: i, Kind: "text", Field: "text",
				Late: Fields{{"citations", List([]json.RawMessage{piece})}}}).End(true)
		},
		"many calls": func(m *Message, i int) {
			b := m.Begin(&Block{Index: i, Kind: "tool_use", ToolUse: true})
			b.Text(str(`{"a":` + string(piece) + `}`))
			b.End(true)
		},
		"one call": func(m *Message, i int) {
			if i == 0 {
				m.Begin(&Block{Kind: "tool_use", ToolUse: true})
			}
			m.Blocks[0].Text(piece)
		},
	} {
		w := newWriter()
		m := w.Start("m", "assistant", nil, nil)
		const n = 4000 // 40 MB
		for i := range n {
			say(m, i)
			events := w.Drain()
			check(t, events[max(0, len(events)-3):])
			if name == "many calls" && i > 0 && types(events) != "block.start tool.input.delta block.end tool.start" {
				t.Fatalf("call %d: %s", i, types(events))
			}
		}
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		if mem.HeapAlloc > 16<<20 {
			t.Errorf("%s: %d MiB are held", name, mem.HeapAlloc>>20)
		}
		m.End(nil)
		events := w.Drain()
		check(t, events)
		end := payload(t, events[len(events)-1])
		if name == "one call" {
			cut := payload(t, events[0])
			if cut.Str("problem") != "cut short" {
				t.Errorf("%s: %.200s", name, events[0].Payload)
			}
			continue
		}
		var out int
		if _, err := fmt.Sscan(string(end.Get("omitted_bytes")), &out); err != nil ||
			string(end.Get("omitted")) != `["content"]` || end.Get("content") != nil {
			t.Errorf("%s: %.200s", name, events[len(events)-1].Payload)
		}
		if out < n*10<<10*9/10 {
			t.Errorf("%s: %d bytes are said to be left out", name, out)
		}
	}
}

// TestInputTooLong: an input that no event could hold is no input.
func TestInputTooLong(t *testing.T) {
	for _, free := range []bool{true, false} {
		w := newWriter()
		b := w.Start("m", "assistant", nil, nil).Begin(&Block{Kind: "tool_use", ToolUse: true, FreeText: free})
		for said := 0; said <= maxInput; said += 1 << 20 {
			b.Text(str(strings.Repeat("1", 1<<20)))
			w.Drain()
		}
		b.End(true)
		events := w.Drain()
		check(t, events)
		if p := payload(t, events[0]); len(events) != 1 || p.Str("problem") != "longer than an input may be" ||
			string(p.Get("complete")) != "false" || b.Len() <= maxInput {
			t.Errorf("%s %.200s", types(events), events[0].Payload)
		}
	}
}

// TestManyBlocks: blocks of any number cost bounded memory and time; those that are open stay so.
func TestManyBlocks(t *testing.T) {
	w := newWriter()
	m := w.Start("m", "assistant", nil, nil)
	open := m.Begin(&Block{Index: 0, Kind: "text", Field: "text"})
	for i := 1; i < 3*maxBlocks; i++ {
		m.Begin(&Block{Index: i, Kind: "text", Field: "text"})
		if b := m.Blocks[len(m.Blocks)-1]; b == nil || b.Index != i {
			t.Fatalf("block %d is not found", i)
		}
		if i == maxBlocks/4 && m.Blocks[0] != open {
			t.Fatal("the first block is not found")
		}
		m.Blocks[len(m.Blocks)-1].End(true)
		w.Drain()
	}
	if n := len(m.Blocks); n > maxBlocks {
		t.Errorf("%d blocks are known", n)
	}
	if open.Open() {
		t.Error("a block that is older than all that are known is open")
	}
	m.End(nil)
	events := w.Drain()
	check(t, events)
	if p := payload(t, events[len(events)-1]); string(p.Get("omitted")) != `["content"]` {
		t.Errorf("%.200s", events[len(events)-1].Payload)
	}
}

func TestOutcome(t *testing.T) {
	w := newWriter()
	message := func(how func(*Message)) { how(w.Start("m", "assistant", nil, nil)) }
	good := func(m *Message) { m.Stop = str("end_turn"); m.End(nil) }
	for _, c := range []struct {
		name           string
		say            func()
		reason, damage string
	}{
		{"nothing", func() {}, "the stream holds no message", "the stream holds no message"},
		{"good", func() { message(good) }, "", ""},
		{"failed", func() {
			message(func(m *Message) { fail(m, Fields{{"type", str("overloaded")}, {"message", str("later")}}.Encode()) })
		}, "overloaded: later", ""},
		{"failed without a word", func() { message(func(m *Message) { fail(m, OrNull(nil)) }) }, `{"value":null}`, ""},
		{"failed before a message", func() { w.Custom("error", Fields{{"error", str("no quota")}}) }, "no quota", ""},
		{"failed, then good", func() { message(func(m *Message) { fail(m, str("x")) }); message(good) }, "", ""},
		{"cut", func() { message(func(m *Message) { m.Abandon("gone") }) }, "stream_cut: gone", "stream_cut: gone"},
		{"cut behind its stop reason", func() { message(func(m *Message) { m.Stop = str("end_turn"); m.Abandon("gone") }) }, "", ""},
		{"bad frame", func() { w.badFrame("", []byte("{"), "invalid JSON"); message(good) },
			"a frame of the stream cannot be read: invalid JSON", "a frame of the stream cannot be read: invalid JSON"},
		{"bad frame and cut", func() {
			message(func(m *Message) { w.badFrame("", nil, "invalid JSON"); m.Abandon("gone") })
		}, "stream_cut: gone", "stream_cut: gone"},
		{"bad frame and failed", func() {
			message(func(m *Message) { w.badFrame("", nil, "invalid JSON"); fail(m, str("x")) })
		}, `{"value":"x"}`, "a frame of the stream cannot be read: invalid JSON"},
	} {
		var o Outcome
		c.say()
		events := w.Drain()
		check(t, events)
		for i := range events {
			o.See(&events[i])
		}
		state, reason := o.State()
		if reason != c.reason || (state == schema.StateError) != (reason != "") || o.Damage() != c.damage {
			t.Errorf("%s: %s, %q, damage %q", c.name, state, reason, o.Damage())
		}
	}
	long := ErrorText(str(strings.Repeat("ü", maxReason)))
	if len(long) > maxReason || strings.ContainsRune(long, 0xfffd) {
		t.Errorf("a reason of %d bytes", len(long))
	}
}

// TestQuote agrees with the standard library.
func TestQuote(t *testing.T) {
	for _, s := range []string{"", "plain_1", `"`, `\`, "a\nb", "\x7f", "ü", "<&>", "\u2028", "\xff", "\x00"} {
		var back, std string
		if err := json.Unmarshal(Quote(s), &back); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		b, _ := json.Marshal(s)
		_ = json.Unmarshal(b, &std)
		if back != std {
			t.Errorf("%q became %q", s, back)
		}
		l := Fields{{s, Quote(s)}}
		if got, ok := Parse(l.Encode()); !ok || len(got) != 1 || got[0].Name != std {
			t.Errorf("%q as a name: %s", s, l.Encode())
		}
	}
}
