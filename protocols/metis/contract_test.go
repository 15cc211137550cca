package metis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestSubscribe: what a subscribe message may say, and how it is told what it may not.
func TestSubscribe(t *testing.T) {
	for _, c := range []struct{ openMessage, filter, refused string }{
		{`{"filter":"preset:full"}`, `{"event_types":null,"actors":null,"include_worker_sessions":false}`, ""},
		{`{"filter":{"event_types":["text.delta","route.decided","text.delta"],"actors":["user"],"include_worker_sessions":true},"since":null,"snapshot":true}`,
			`{"event_types":["route.decided","text.delta"],"actors":["user"],"include_worker_sessions":true}`, ""},
		{`{"filter":{"event_types":[]}}`, `{"event_types":[],"actors":null,"include_worker_sessions":false}`, ""},
		{`{"filter":{}}`, `{"event_types":null,"actors":null,"include_worker_sessions":false}`, ""},
		{`{"filter":{"event_types":["made.up.thing"]}}`, "", "made.up.thing"},
		{`{"filter":{"event_types":[""]}}`, "", "event_types"},
		{`{"filter":{"actors":["nobody"]}}`, "", "nobody"},
		{`{"filter":"preset:other"}`, "", "preset:other"},
		{`{"filter":{"event_types":"text.delta"}}`, "", "event_types"},
		{`{"filter":{"event_types":[null]}}`, "", "event_types"},
		{`{"filter":{"include_worker_sessions":1}}`, "", "include_worker_sessions"},
		{`{"filter":7}`, "", "filter"},
		{`{}`, "", "filter"},
		{`{"filter":"preset:full","since":7}`, "", "since"},
		{`{"filter":"preset:full","snapshot":"yes"}`, "", "snapshot"},
		{`{"filter":{"event_types":["` + strings.Repeat("x", 1<<16) + `"]}}`, "", "xxx"},
	} {
		s, err := ParseSubscribe([]byte(c.openMessage))
		if c.refused != "" {
			if CodeOf(err) != CodeInvalidFilter || !strings.Contains(err.Error(), c.refused) || len(err.Error()) > 350 {
				t.Errorf("%.80s: %.300v", c.openMessage, err)
			}
			continue
		}
		if got, _ := json.Marshal(s.Filter); err != nil || string(got) != c.filter {
			t.Errorf("%s: %s, %v", c.openMessage, got, err)
		}
	}
	chat := strings.Join(Chat().Types, "|")
	for _, name := range []string{"turn.started", "llm.call_failed", "delegate.failed", "feedback.explicit",
		"tool.input_invalid", "tool.use_end", "memory.eviction"} {
		if !slices.Contains(Chat().Types, name) {
			t.Errorf("preset:chat has no %s", name)
		}
	}
	if strings.Contains(chat, "session.") || len(Chat().Types) != 27 {
		t.Errorf("preset:chat is %s", chat)
	}
	ack := string(Subscribe{Since: "evt_x"}.AppendAck(nil, 47))
	if want := `{"type":"subscribe_ack","resolved_filter":{"event_types":null,"actors":null,"include_worker_sessions":false},"since":"evt_x","snapshot":false,"replay_event_count":47}`; ack != want {
		t.Errorf("acknowledged with %s", ack)
	}
}

// TestCursors: an id of another session, or none, is refused before or by Admit; one of a worker's events is one of its
// run.
func TestCursors(t *testing.T) {
	list := records(t, schematest.ByName("children"))
	p := projector(Filter{Workers: true}, "")
	for _, f := range project(t, p, list) {
		for _, child := range []string{"", schematest.ChildA} {
			req, err := Subscribe{Since: f.id}.Request(schematest.Root)
			req.Child = child
			if err != nil || req.Newest || p.Admit(req) != nil {
				t.Fatalf("%s: %v, %v", f.id, err, p.Admit(req))
			}
		}
	}
	other, _ := Subscribe{Since: EventID("run_other", dialect.Place{Seq: 3})}.Request(schematest.Root)
	if err := p.Admit(other); CodeOf(err) != CodeCursorExpired || !errors.Is(err, schema.ErrBadCursor) {
		t.Errorf("another session's: %v", err)
	}
	for _, id := range []string{"evt_", "evt_0", "x", TurnID(schematest.Root, 2), "evt_zzzzzzzzzzzzzzzzzzzz",
		"evt_00000000000000000000", strings.ToUpper(EventID(schematest.Root, dialect.Place{Seq: 1}))} {
		if _, err := (Subscribe{Since: id}).Request(schematest.Root); CodeOf(err) != CodeCursorExpired {
			t.Errorf("%s: %v", id, err)
		}
	}
	if req, err := (Subscribe{Since: "none of it", Snapshot: true}).Request(schematest.Root); err != nil || !req.Newest {
		t.Errorf("a snapshot needs no cursor: %v", err)
	}
	if err := p.Admit(dialect.Request{Child: "nobody"}); CodeOf(err) != CodeSessionNotFound {
		t.Errorf("no such worker: %v", err)
	}
	project(t, p, records(t, log("session.deleted {}")))
	if err := p.Admit(dialect.Request{}); CodeOf(err) != CodeSessionNotFound {
		t.Errorf("deleted: %v", err)
	}
}

// TestErrors: refusals over HTTP.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		p    dialect.Problem
		want string
	}{
		{dialect.Problem{Reason: dialect.ReasonState, Named: "turn_in_flight", Message: "one is", RequestID: "r"},
			`{"error":{"code":"turn_in_flight","message":"one is","details":{"request_id":"r"}}}`},
		{dialect.Problem{Reason: dialect.ReasonNotFound},
			`{"error":{"code":"session_not_found","message":"the request was refused","details":{}}}`},
		{dialect.Problem{Reason: dialect.ReasonBusy, Message: "too much"},
			`{"error":{"code":"busy","message":"too much","details":{}}}`},
	} {
		if got := string(Dialect{}.AppendError(nil, c.p)); got != c.want {
			t.Errorf("got %s", got)
		}
	}
	for code, want := range map[Code]error{CodeTurnInFlight: dialect.ErrGone, CodeTurnNotFound: dialect.ErrNotFound,
		CodeInvalidContent: dialect.ErrBadRequest, CodeCursorExpired: schema.ErrBadCursor} {
		if err := fmt.Errorf("x: %w", Refuse(code, "why")); !errors.Is(err, want) || CodeOf(err) != code {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestCopies: a copy that is made behind any record goes on like the original, and neither disturbs the other; a size
// is known and is that of what is kept.
func TestCopies(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		s := random(seed)
		list := records(t, s)
		p := projector(Filter{Workers: true}, "")
		var want [][]told
		copies := []*Projector{p.For(p.req).(*Projector)}
		for _, r := range list {
			want = append(want, project(t, p, []schema.Record{r}))
			copies = append(copies, p.For(p.req).(*Projector))
		}
		for at, c := range copies {
			size, other := c.Size(), c.For(c.req).(*Projector)
			for i := at; i < min(len(list), at+6); i++ {
				if got := project(t, c, list[i:i+1]); !slices.EqualFunc(got, want[i],
					func(x, y told) bool { return bytes.Equal(x.data, y.data) }) {
					t.Fatalf("%s: the copy at %d differs at %d", s.Name, at, i)
				}
			}
			if got := other.Size(); got != size {
				t.Fatalf("%s: the copy at %d has changed from %d to %d bytes", s.Name, at, size, got)
			}
		}
	}
}

// TestSizes: what is kept does not grow with a run, and grows with what is open no further than its bounds.
func TestSizes(t *testing.T) {
	p := projector(Filter{}, "")
	sizes := map[int]int{}
	seq := 0
	feed := func(text string) {
		for _, e := range log(text).Events {
			seq++
			e.ID, e.TS, e.RunID, e.Seq = fmt.Sprintf("evt_%026d", seq), "2026-01-02T03:04:05.000Z", schematest.Root,
				schema.Seq(seq)
			e.Path = nil
			r, err := schema.ScanLine(e.AppendLine(nil))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Project(nil, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := 1; n <= 3000; n++ {
		feed(asking + reading + complete + "tool.end {\"call_id\":\"c1\",\"ok\":true}\nturn.end {\"turn_id\":\"t\"}\n")
		sizes[n] = p.Size()
	}
	if sizes[3000] > sizes[100]+1<<10 {
		t.Errorf("%d bytes behind 100 turns, %d behind 3,000", sizes[100], sizes[3000])
	}
	for n := range 12_000 {
		feed(fmt.Sprintf("child.spawn {\"child_id\":\"w%d\"}\nw%d:text.delta {\"text\":\"x\"}\nw%d:run.lifecycle {\"state\":\"done\"}\n", n, n, n))
	}
	if size := p.Size(); size > 12<<20 || len(p.sessions) > maxSessions {
		t.Errorf("%d bytes with 12,000 workers, %d sessions", size, len(p.sessions))
	}
}

// TestLongMessage: a message that is streamed ends whole up to 8 MiB. Of a longer one final_content is absent, because
// an empty one would blank the page of a client that does what the catalog says, and omitted_bytes has its size.
func TestLongMessage(t *testing.T) {
	t.Parallel()
	const piece = 64 << 10
	for _, c := range []struct {
		pieces int
		whole  bool
	}{{5, true}, {7, true}, {40, true}, {127, true}, {129, false}, {400, false}} {
		p := projector(Filter{}, "")
		feed := func(text string) []event { return events(t, project(t, p, records(t, log(text)))) }
		feed(asking + `message.start {"message_id":"long","role":"assistant"}` + "\n")
		for range c.pieces {
			feed(`text.delta {"text":"` + strings.Repeat("x", piece) + "\"}\n")
		}
		p = p.For(p.req).(*Projector)
		e := feed(`message.end {"message_id":"long","stop_reason":"end_turn"}` + "\n")[0]
		_, named := fields(t, e.Payload)["final_content"]
		switch {
		case e.Type != "message.complete" || named != c.whole:
			t.Errorf("%d pieces end with %s %.100s", c.pieces, e.Type, e.Payload)
		case c.whole && (e.p.Omitted != 0 || len(e.Payload) < c.pieces*piece):
			t.Errorf("%d pieces: %d bytes, %d are missing", c.pieces, len(e.Payload), e.p.Omitted)
		case !c.whole && e.p.Omitted < int64(c.pieces*piece):
			t.Errorf("%d pieces: only %d bytes are said to be missing", c.pieces, e.p.Omitted)
		}
	}
}

// fields reads an object.
func fields(t *testing.T, text []byte) (o map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestHostile: payloads of any form, in every type, are no error, and make frames that are valid.
func TestHostile(t *testing.T) {
	t.Parallel()
	payloads := append(schematest.HostilePayloads(), `{}`,
		`{"call_id":7,"message_id":[],"content":{},"turn_id":null,"state":"done"}`,
		`{"call_id":"c","tool":7,"input":"x","ok":"no","usage":[],"error":7,"error_detail":"x","duration_ms":-1e400,"reason":{}}`,
		`{"request_id":"r","call_id":"c","answer":{"result":7,"scope":[]},"prompt":7,"child_id":"../x","through":-1}`,
		`{"message_id":"m","role":"assistant","content":["x",7,null,{"type":7},{"type":"text"},{"type":"image","source":7},{"type":"tool_use","input":"\ud800"},{"type":"thinking"}]}`,
		`{"index":-1,"kind":7,"call_id":"c","tool":"`+strings.Repeat("y", 5000)+`","text":"`+strings.Repeat("z", 3000)+`"}`)
	types := []string{"custom.metis.route.decided", "custom.metis.text.delta", "custom.x"}
	for _, info := range schema.Types() {
		types = append(types, info.Name)
	}
	var s schematest.Scenario
	for _, before := range []string{"", asking, asking + reading, asking + reading + complete} {
		for _, typ := range types {
			for i, payload := range payloads {
				s.Events = append(s.Events, log(before).Events...)
				e := schema.Event{Type: typ, Payload: json.RawMessage(payload), Actor: "wörker", TurnID: "\x00"}
				if i%3 == 0 {
					e.ChildID, e.Path = "w", []string{schematest.Root, "w"}
				}
				s.Events = append(s.Events, e)
			}
		}
	}
	list := records(t, s)
	p := projector(Filter{Workers: true}, "")
	c := newChecker()
	for i, r := range list {
		for _, e := range events(t, project(t, p, []schema.Record{r})) {
			if wrong := c.see(e); wrong != "" {
				t.Fatalf("%s behind %s %.200s: %s", e.Type, r.Type, r.Line, wrong)
			}
		}
		if i%997 == 0 {
			if snap, err := p.AppendSnapshot(nil, walk(list)); err != nil || !json.Valid(snap) {
				t.Fatalf("snapshot at %d: %v %s", i, err, snap)
			}
		}
	}
	for _, f := range project(t, newProjector(MessagesRequest(schematest.Root)), list) {
		if !json.Valid(f.data) {
			t.Fatalf("message %s", f.data)
		}
	}
}

// TestSnapshots: the messages of a snapshot are the newest of those that pages have, and one under way is what was
// streamed of it; the rest of the events stands behind the id that it names.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	for _, s := range short(t) {
		list := records(t, s)
		p := projector(Filter{}, "")
		pages := newProjector(MessagesRequest(schematest.Root))
		var messages []string
		streamed := map[string]*reply{}
		last := ""
		for i, r := range list {
			for _, m := range project(t, pages, list[i:i+1]) {
				messages = append(messages, string(m.data))
			}
			for _, e := range events(t, project(t, p, list[i:i+1])) {
				last = e.ID
				if m := streamed[e.p.Message]; m != nil {
					m.see(e)
				} else if e.Type == "message.start" {
					streamed[e.p.Message] = newReply()
				}
			}
			if r.Seq%11 != 0 && i != len(list)-1 {
				continue
			}
			var snap struct {
				Session  struct{ ID string }
				Messages []json.RawMessage
				At       string `json:"snapshot_at_event_id"`
			}
			data, err := p.AppendSnapshot(nil, walk(list[:i+1]))
			if err := errors.Join(err, json.Unmarshal(data, &snap)); err != nil {
				t.Fatalf("%s: %v: %s", s.Name, err, data)
			}
			if snap.At != last || snap.Session.ID != schematest.Root || len(snap.Messages) > maxRecent {
				t.Fatalf("%s at %d: snapshot at %s behind %s, %d messages", s.Name, r.Seq, snap.At, last, len(snap.Messages))
			}
			if n := len(snap.Messages); n > 0 && bytes.Contains(snap.Messages[n-1], []byte(`"status":"partial"`)) {
				var m struct {
					ID      string
					Role    string
					Content []json.RawMessage
				}
				_ = json.Unmarshal(snap.Messages[n-1], &m)
				if wrong := streamed[m.ID].prefix(m.Content); m.Role == "assistant" && wrong != "" {
					t.Fatalf("%s at %d: %s: %s", s.Name, r.Seq, wrong, snap.Messages[n-1])
				}
				snap.Messages = snap.Messages[:n-1]
			}
			want := messages[max(0, len(messages)-len(snap.Messages)):]
			for j, m := range snap.Messages {
				if string(m) != want[j] {
					t.Fatalf("%s at %d:\n%s, pages have\n%s", s.Name, r.Seq, m, want[j])
				}
			}
			if len(snap.Messages) < min(maxRecent-1, len(messages)) {
				t.Fatalf("%s at %d: %d of %d messages", s.Name, r.Seq, len(snap.Messages), len(messages))
			}
		}
	}
}
