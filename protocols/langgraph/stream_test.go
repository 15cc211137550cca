package langgraph

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func scenarios() []schematest.Scenario {
	s := log(allChannels)
	s.Name = "all-channels"
	list := append(schematest.All(), s)
	for i := range list {
		if len(list[i].Events) > 300 {
			list[i].Events = list[i].Events[:300]
		}
	}
	return list
}

// TestResumeBehindEveryFrame: since and the event's id give the rest, byte for byte, under each filter.
func TestResumeBehindEveryFrame(t *testing.T) {
	for _, s := range scenarios() {
		list := records(t, s)
		for _, body := range filters {
			all := project(t, projector(t, body), list)
			whole := project(t, projector(t, everything), list)
			for i, f := range whole { // a cursor of one filter is one of all
				e := events(t, whole[i:i+1])[0]
				with := strings.TrimSuffix(body, "}")
				a := requested(t, fmt.Sprintf(`%s,"since":%d}`, with, e.Seq))
				b := requested(t, fmt.Sprintf(`%s,"since_event_id":%q}`, with, e.EventID))
				if a.Cursor != b.Cursor || a.Cursor.Place.Slot != f.Slot || a.Await {
					t.Fatalf("%s: %+v, %+v", f.Data, a.Cursor, b.Cursor)
				}
				if i%7 != len(body)%7 { // each filter from some of the frames
					continue
				}
				want := []byte{}
				for _, g := range all {
					if n := events(t, []dialect.Frame{g})[0].Seq; n > e.Seq {
						want = append(append(want, g.Data...), '\n')
					}
				}
				if got := resume(t, a, list); got != string(want) {
					t.Fatalf("%s %s behind %s:\n%s\nwant\n%s", s.Name, body, f.Data, got, want)
				}
			}
		}
	}
}

// resume does what the edge does for a cursor: see state.Cache.Find.
func resume(t *testing.T, req dialect.Request, list []schema.Record) string {
	t.Helper()
	kept := newProjector(dialect.Request{})
	at := req.Cursor.Place
	for _, r := range list[:at.Seq-1] {
		if err := kept.Project(nil, r); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	for i, f := range project(t, kept.For(req).(*Projector), list[at.Seq-1:]) {
		_ = i
		e := events(t, []dialect.Frame{f})[0]
		if PlaceOf(e.Seq).Seq > at.Seq || f.Slot > at.Slot {
			b.Write(append(f.Data, '\n'))
		}
	}
	return b.String()
}

// TestOneProjection: every filter shows frames of one projection, which are what the protocol's own matching takes.
func TestOneProjection(t *testing.T) {
	list := records(t, log(allChannels))
	all := events(t, project(t, projector(t, everything), list))
	seen := map[string]bool{}
	for _, body := range filters {
		f, err := ParseFilter([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, e := range all {
			if matches(f, e) {
				want = append(want, e.EventID)
			}
		}
		var got []string
		for _, e := range events(t, project(t, projector(t, body), list)) {
			got = append(got, e.EventID)
			seen[e.Method] = true
		}
		if !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("%s: %d frames, want %d", body, len(got), len(want))
		}
		if again, err := ReadSelection(f.Selection().Key()); err != nil || again.Selection().Key() != f.Selection().Key() {
			t.Errorf("%s: key %s: %v", body, f.Selection().Key(), err)
		}
	}
	for _, c := range append(channels[:3:3], "input.requested", "input.answered", "values", "updates", "checkpoints",
		"tasks", "custom") {
		if !seen[c] {
			t.Errorf("no %s", c)
		}
	}
}

// matches is the SDK's matching (digest §2), written after its text.
func matches(f ThreadFilter, e event) bool {
	channel := strings.TrimSuffix(strings.TrimSuffix(e.Method, ".requested"), ".answered")
	shown := slices.Contains(f.Channels, channel) || e.Method == "custom" && e.d.Name != "" &&
		slices.Contains(f.Channels, "custom:"+e.d.Name)
	if !shown || len(f.Namespaces) == 0 {
		return shown
	}
	for _, prefix := range f.Namespaces {
		if len(prefix) > len(e.Params.Namespace) {
			continue
		}
		same := true
		for i, want := range prefix {
			got := e.Params.Namespace[i]
			if !strings.Contains(want, ":") {
				got, _, _ = strings.Cut(got, ":")
			}
			same = same && got == want
		}
		if same && (f.Depth == nil || len(e.Params.Namespace)-len(prefix) <= *f.Depth) {
			return true
		}
	}
	return false
}

// TestAnyLog: whatever the log says, copies of a projector make the frames that it makes, the numbers rise, and what
// opens closes.
func TestAnyLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := schematest.Scenario{Events: generate(rt)}
		list := records(t, s)
		p := projector(t, everything)
		at := rapid.IntRange(0, len(list)).Draw(rt, "copied")
		frames := project(t, p, list[:at])
		c := p.For(p.req).(*Projector)
		size := p.Size()
		rest, again := project(t, p, list[at:]), project(t, c, list[at:])
		if len(rest) != len(again) || size <= 0 {
			rt.Fatalf("the copy makes %d frames, not %d", len(again), len(rest))
		}
		for i := range rest {
			if string(rest[i].Data) != string(again[i].Data) || rest[i].Slot != again[i].Slot {
				rt.Fatalf("the copy makes\n%s, not\n%s", again[i].Data, rest[i].Data)
			}
		}
		if wrong := malformed(events(t, append(frames, rest...))); wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// generate writes a log of records in any order.
func generate(t *rapid.T) (all []schema.Event) {
	lines := strings.Split(strings.TrimSpace(allChannels), "\n")
	extra := []string{
		`message.start {"message_id":"m2","role":"assistant"}`,
		`message.end {"message_id":"m2","content":[{"type":"text","text":"I ask two. And."}]}`,
		`block.start {"index":3,"kind":"tool_use","call_id":"l","tool":"t"}`,
		`tool.input.delta {"call_id":"l","text":"{}"}`, `text.delta {"text":"x","index":9}`,
		`run.lifecycle {"state":"aborted"}`, `run.lifecycle {"state":"paused"}`, `kid:text.delta {"text":"\ud83d"}`,
		`block.end {"index":1,"complete":true}`,
		`commands.taken {"through":9}`, `command.message {"content":"x","multitask_strategy":"enqueue"}`,
		`block.start {"index":4,"kind":"image","block":{"type":"image","x":""}}`,
		`data.delta {"media_type":"audio/wav","data":"AA","index":4}`, `run.lifecycle {"state":"error","reason":"why"}`,
	}
	lines = append(lines, extra...)
	n := rapid.IntRange(1, 60).Draw(t, "records")
	var b strings.Builder
	for range n {
		b.WriteString(rapid.SampledFrom(lines).Draw(t, "line") + "\n")
	}
	return log(b.String()).Events
}

// malformed returns what is wrong with events: numbers that do not rise, blocks that interleave, a finish that is not
// its deltas, and what is open at a terminal. "" is nothing.
func malformed(all []event) string {
	type open struct {
		start  event
		blocks int
		block  *event
		text   string
	}
	last := int64(0)
	models := map[string]*open{}
	running := false
	for _, e := range all {
		if e.Seq <= last || e.Seq > MaxNumber {
			return fmt.Sprintf("%s has %d behind %d", e.EventID, e.Seq, last)
		}
		last = e.Seq
		if e.Method == "lifecycle" && len(e.Params.Namespace) == 0 {
			if run := e.d.Event == "running"; run == running && run {
				return "running twice"
			} else if running = run; !run {
				for _, m := range models {
					if len(m.start.Params.Namespace) == 0 && e.d.Event == completed && m.start.RunID == e.RunID {
						return e.EventID + ": a message is open at the terminal"
					}
				}
			}
		}
		if e.Method != "messages" {
			continue
		}
		m := models[e.d.RunID]
		switch {
		case e.d.Event == "message-start":
			if m != nil {
				return "a model call has two messages"
			}
			models[e.d.RunID] = &open{start: e}
			continue
		case m == nil:
			return fmt.Sprintf("%s %s of no message", e.EventID, e.d.Event)
		case e.d.Event == "usage":
			continue
		case e.d.Event == "content-block-start":
			if m.block != nil || e.d.Index != m.blocks {
				return fmt.Sprintf("%s: block %d, expected %d", e.EventID, e.d.Index, m.blocks)
			}
			m.block, m.text = &e, ""
			m.blocks++
			continue
		case e.d.Event == "message-finish" || e.d.Event == "error":
			if m.block != nil {
				return e.EventID + ": a block is open"
			}
			delete(models, e.d.RunID)
			continue
		case m.block == nil || m.block.d.Index != e.d.Index:
			return fmt.Sprintf("%s: %s of block %d interleaves", e.EventID, e.d.Event, e.d.Index)
		}
		switch e.d.Event {
		case "content-block-delta":
			m.text += e.d.Delta.Text + e.d.Delta.Reasoning + e.d.Delta.Data
		case "content-block-finish":
			if c := e.d.Content; (c.Type == "text" || c.Type == "reasoning" || c.Data != "") &&
				c.Text+c.Reasoning+c.Data != m.text && !strings.Contains(m.text, "�") {
				return fmt.Sprintf("%s: finish %q, deltas %q", e.EventID, c.Text+c.Reasoning+c.Data, m.text)
			}
			m.block = nil
		}
	}
	return ""
}

// TestScenariosAreWellFormed: the scenarios in which nobody misbehaves.
func TestScenariosAreWellFormed(t *testing.T) {
	for _, s := range scenarios() {
		if wrong := malformed(told(t, s)); wrong != "" {
			t.Errorf("%s: %s", s.Name, wrong)
		}
	}
}

// TestCopiesAtOnce: copies of one projector are made and fed at the same time, and each goes on by itself.
func TestCopiesAtOnce(t *testing.T) {
	list := records(t, log(allChannels))
	for at := 5; at < len(list); at += 9 {
		p := newProjector(dialect.Request{})
		for _, r := range list[:at] {
			if err := p.Project(nil, r); err != nil {
				t.Fatal(err)
			}
		}
		req := requested(t, everything)
		var all [4]string
		var running sync.WaitGroup
		for i := range all {
			running.Go(func() {
				for _, f := range project(t, p.For(req).(*Projector), list[at:]) {
					all[i] += string(f.Data)
				}
			})
		}
		running.Wait()
		for i := range all {
			if all[i] != all[0] || all[0] == "" {
				t.Errorf("copies at %d differ", at)
			}
		}
	}
}

// TestBeginningExpired: a projector that is fed from a later record on gives what that record says the numbers and ids
// that it has for everybody.
func TestBeginningExpired(t *testing.T) {
	for _, s := range scenarios() {
		if s.Name == "hostile" || s.Name == "unicode" {
			continue
		}
		list := records(t, s)
		want := map[int64]bool{}
		for _, e := range told(t, s) {
			want[e.Seq] = true
		}
		for from := 1; from < len(list); from += 5 {
			for _, e := range events(t, project(t, projector(t, everything), list[from:])) {
				if slot := PlaceOf(e.Seq).Slot; slot >= slotSays && slot != slotLast && !want[e.Seq] &&
					!strings.HasPrefix(e.d.Event, "content-block") && !strings.HasPrefix(e.d.Event, "message-") {
					t.Errorf("%s from %d: %s %s has %d, which it has not from the beginning", s.Name, from, e.Method,
						e.Params.Data, e.Seq)
				}
			}
		}
	}
}

func TestBadInput(t *testing.T) {
	many := strings.Repeat(`"values",`, 64) + `"values"`
	for body, want := range map[string]string{
		``: "JSON object", `[]`: "JSON object", `{"channels":`: "JSON object", `{}`: "channels",
		`{"channels":[]}`: "channels", `{"channels":null}`: "channels",
		`{"channels":"values"}`: "channels", `{"channels":["valuez"]}`: `"valuez"`,
		`{"channels":["custom:"]}`: `"custom:"`, `{"channels":["input.requested"]}`: "channel",
		`{"channels":[` + many + `]}`: "64", `{"channels":["values"],"namespaces":["a"]}`: "namespaces",
		`{"channels":["values"],"namespaces":[[1]]}`:    "namespaces",
		`{"channels":["values"],"namespaces":[null]}`:   "namespace",
		`{"channels":["values"],"namespaces":[[null]]}`: "segment",
		`{"channels":["values"],"depth":-1}`:            "depth", `{"channels":["values"],"depth":"1"}`: "depth",
		`{"channels":["values"],"depth":1.5}`: "depth",
		`{"channels":["values"],"since":-1}`:  "since", `{"channels":["values"],"since":"1"}`: "since",
		`{"channels":["values"],"since":9007199254740992}`: "since",
		`{"channels":["values"],"since_event_id":"1-2"}`:   "event",
		`{"channels":["values"],"sinceEventId":7}`:         "since_event_id",
		`{"channels":["values"],"snapshot":1}`:             "snapshot",
	} {
		_, err := Dialect{}.Open(dialect.Input{Body: []byte(body), Path: map[string]string{"run": "r"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v", body, err)
		}
	}
	id := EventID("other", dialect.Place{Seq: 3, Slot: 1})
	if _, err := (Subscribe{}).Request("mine", id); err == nil {
		t.Error("the id of an event of another thread is taken")
	}
	if _, err := (Subscribe{}).Request("a/b", ""); err == nil {
		t.Error("a thread id that is none of a run is taken")
	}
	if req := requested(t, `{"channels":["values"],"unknown":1,"depth":3,"since":null,"namespaces":null}`); !req.Await || req.Cursor.Place.Seq != 0 {
		t.Errorf("%+v", req)
	}
	camel := requested(t, `{"channels":["values"],"sinceEventId":"`+
		EventID(schematest.Root, dialect.Place{Seq: 3, Slot: 1})+`"}`)
	if camel.Cursor.Place != (dialect.Place{Seq: 3, Slot: 1}) {
		t.Errorf("%+v", camel.Cursor)
	}
}

// TestErrors: {"error":CODE,"message":TEXT} over HTTP, and with the command's id on a socket.
func TestErrors(t *testing.T) {
	for reason, want := range map[dialect.Reason]string{
		dialect.ReasonBadRequest: "invalid_argument", dialect.ReasonBadCursor: "invalid_argument",
		dialect.ReasonExpired:   "invalid_argument",
		dialect.ReasonForbidden: "permission_denied", dialect.ReasonNotFound: "no_such_run",
		dialect.ReasonNoRoute: "not_supported", dialect.ReasonInternal: "unknown_error",
	} {
		var got map[string]any
		if err := json.Unmarshal((Dialect{}).AppendError(nil, dialect.Problem{Reason: reason, Last: 7}),
			&got); err != nil || got["error"] != want || got["message"] == "" {
			t.Errorf("%v: %v %v", reason, got, err)
		}
	}
	got := string(AppendCommandError(nil, nil, dialect.Problem{Named: CodeNoSuchInterrupt, Message: "x"}))
	if got != `{"type":"error","id":null,"error":"no_such_interrupt","message":"x"}` {
		t.Error(got)
	}
	for _, r := range dialect.Reasons() {
		if CodeOf(dialect.Problem{Reason: r}) == "" {
			t.Errorf("%v has no code", r)
		}
	}
}
