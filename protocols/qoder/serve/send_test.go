package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// sentData returns the events of an answer, as they were written.
func (a answer) sentData() []string {
	a.T.Helper()
	a.OK(200)
	var o struct{ Data []json.RawMessage }
	if err := json.Unmarshal([]byte(a.Body), &o); err != nil {
		a.T.Fatal(err)
	}
	return texts(o.Data)
}

// framesOf returns the frames of a history that clients have sent.
func (h *house) framesOf(run, thread string) (said []string) {
	for _, f := range h.frames(run, thread) {
		if strings.HasPrefix(f.typ, "user.") || f.typ == "system.message" {
			said = append(said, f.data)
		}
	}
	return said
}

// TestSendAnswersWhatIsShown holds that an event is the same in the answer, the history and the stream.
func TestSendAnswersWhatIsShown(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.says(id, event(schema.TypeTurnStart, `{"turn_id":"t"}`),
		event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`),
		event(schema.TypeTextDelta, `{"text":"in the middle of"}`))
	got := h.do("POST", eventsPath(id, ""), `{"events":[
		{"type":"user.message","content":[{"type":"text","text":"\ud800 caf\u00e9 <&>"}],"file_attachments":[1.0]},
		{"type":"system.message","content":[{"type":"text","text":"be brief"}]},
		{"type":"user.interrupt","reason":"enough"}]}`).sentData()
	if len(got) != 3 {
		t.Fatalf("%d events: %q", len(got), got)
	}
	same(t, "the stream's", h.framesOf(id, ""), got)
	for i, want := range []string{`"\ud800 caf\u00e9 <&>"`, `"be brief"`, `"enough"`} {
		if !strings.Contains(got[i], want) {
			t.Errorf("%s lacks %s", got[i], want)
		}
	}
	same(t, "the history's", texts(h.page(eventsPath(id, "")+"?types=user.message,system.message,user.interrupt").Data),
		got)
	p := h.page(eventsPath(id, "") + "?after_id=" + idOf([]byte(got[0])) + "&types=system.message")
	same(t, "behind the first", texts(p.Data), got[1:2])
}

func TestSendAgain(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.says(id, event(schema.TypeChildSpawn, `{"child_id":"kid"}`),
		of("kid", event(schema.TypeTurnStart, `{"turn_id":"t"}`)))
	kid := qoder.ThreadID(id, "kid")
	body := fmt.Sprintf(`{"events":[{"type":"user.message","content":[{"type":"text","text":"a"}]},{"type":"user.interrupt","session_thread_id":%q},
		{"type":"user.message","content":[{"type":"text","text":"b"}]}]}`, kid)
	first := h.do("POST", eventsPath(id, ""), body, "Idempotency-Key", "k")
	if got := first.sentData(); len(got) != 3 || !strings.Contains(got[1], kid) {
		t.Fatalf("%q", got)
	}
	last := h.head(id).Last
	h.do("POST", eventsPath(id, ""), hello).OK(200)
	if again := h.do("POST", eventsPath(id, ""), body, "Idempotency-Key", "k"); again.Body != first.Body ||
		again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s\n%s", again.Body, first.Body)
	}
	if h.head(id).Last != last+1 {
		t.Errorf("%v", h.types(id))
	}
	h.do("POST", eventsPath(id, ""), hello, "Idempotency-Key", "k").refused(422, "invalid_request_error")
}

// TestSendAllOrNothing holds that one bad event keeps all of its request out.
func TestSendAllOrNothing(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	last := h.head(id).Last
	good := `{"type":"user.message","content":[{"type":"text","text":"a"}]}`
	for _, bad := range []string{
		`{"type":"agent.message","content":[]}`, `{"type":"no.such"}`, `{}`, `null`, `1`, `"x"`, `[]`, `{"type":1}`,
		`{"type":"user.message","content":[{"type":"text","text":"` + strings.Repeat("x", 600<<10) + `"}]}`,
		`{"type":"user.interrupt","session_thread_id":"sthr_none"}`,
		`{"type":"user.tool_confirmation","result":"allow"}`,
	} {
		a := h.do("POST", eventsPath(id, ""), `{"events":[`+good+`,`+bad+`]}`)
		if a.Status < 400 || a.Status >= 500 {
			t.Errorf("%.80s: %d %.200s", bad, a.Status, a.Body)
		}
		if h.head(id).Last != last {
			t.Fatalf("%.80s: %v", bad, h.types(id))
		}
	}
	for _, body := range []string{`{"events":[` + good + `],"events":[` + good + `]}`, `{"EVENTS":[` + good + `]}`,
		`{"events":[` + good + `]} x`} {
		h.do("POST", eventsPath(id, ""), body).refused(400, "invalid_request_error")
	}
	if h.head(id).Last != last {
		t.Fatalf("%v", h.types(id))
	}
	many := `{"events":[` + strings.Repeat(good+",", 256) + good + `]}`
	h.do("POST", eventsPath(id, ""), many).refused(400, "invalid_request_error")
	h.do("POST", eventsPath(id, ""), `{"events":[]}`).refused(400, "invalid_request_error")
	if got := h.do("POST", eventsPath(id, ""),
		`{"events":[`+strings.Repeat(good+",", 255)+good+`]}`).sentData(); len(got) != 256 {
		t.Errorf("%d of 256", len(got))
	}
}

// TestArchivedMeanwhile archives a session between the look at it and the append.
func TestArchivedMeanwhile(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.log.when(1, func() { h.says(id, event(schema.TypeSessionArchived, `{}`)) })
	h.do("POST", eventsPath(id, ""), hello).refused(409, "conflict_error")
	if types := h.types(id); slices.Contains(types, schema.TypeCommandMessage) {
		t.Errorf("%v", types)
	}
}

// waits makes a session whose agent waits for a person, and returns the id of the event to answer.
func (h *house) waits(id string) (use string) {
	h.t.Helper()
	h.says(id, event(schema.TypeTurnStart, `{"turn_id":"t"}`),
		event(schema.TypeToolStart, `{"call_id":"c","tool":"empty_queue","input":{"q":1}}`),
		event(schema.TypeInputRequested, `{"request_id":"req","call_id":"c","prompt":"Empty it?"}`))
	for _, f := range h.frames(id, "") {
		if f.typ == "agent.tool_use" {
			use = f.id
		}
	}
	return use
}

// TestAnswerAgain sends an answer a second time: with its key that is a repeat, without it is refused.
func TestAnswerAgain(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	body := fmt.Sprintf(`{"events":[{"type":"user.tool_confirmation","tool_use_id":%q,"result":"allow"}]}`, h.waits(id))
	first := h.do("POST", eventsPath(id, ""), body, "Idempotency-Key", "k")
	if got := first.sentData(); len(got) != 1 || !strings.Contains(got[0], `"user.tool_confirmation"`) {
		t.Fatalf("%q", got)
	}
	h.says(id, event(schema.TypeInputAnswered, `{"request_id":"req","answer":{}}`),
		event(schema.TypeToolEnd, `{"call_id":"c","ok":true,"output":"done"}`),
		event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"end_turn"}`))
	last := h.head(id).Last
	if again := h.do("POST", eventsPath(id, ""), body, "Idempotency-Key", "k"); again.Body != first.Body {
		t.Errorf("%d %s\n%s", again.Status, again.Body, first.Body)
	}
	h.do("POST", eventsPath(id, ""), body).refused(400, "invalid_request_error")
	h.do("POST", eventsPath(id, ""), body, "Idempotency-Key", "k2").refused(400, "invalid_request_error")
	if h.head(id).Last != last {
		t.Errorf("%v", h.types(id))
	}
}

// TestAnsweredMeanwhile answers what somebody else answers between the look at it and the append.
func TestAnsweredMeanwhile(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	body := fmt.Sprintf(`{"events":[{"type":"user.tool_confirmation","tool_use_id":%q,"result":"deny"}]}`, h.waits(id))
	h.log.when(1, func() {
		h.says(id, event("command.answer", `{"request_id":"req","answer":{"type":"user.tool_confirmation","result":"allow"}}`), event(schema.TypeInputAnswered, `{"request_id":"req"}`),
			event(schema.TypeToolEnd, `{"call_id":"c","ok":true}`))
	})
	h.do("POST", eventsPath(id, ""), body).refused(400, "invalid_request_error")
	if n := count(h.types(id), "command.answer"); n != 1 {
		t.Errorf("answered %d times", n)
	}
}

// TestSendTogether sends from many sides: each answer is about the events of its own request.
func TestSendTogether(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			text := func(j int) string {
				return fmt.Sprintf(`{"type":"user.message","content":[{"type":"text","text":"%d of %d"}]}`, j, i)
			}
			got := h.do("POST", eventsPath(id, ""), `{"events":[`+text(1)+`,`+text(2)+`]}`, "Idempotency-Key",
				fmt.Sprint(i%12)).Body
			if i < 12 && strings.Contains(got, `"error"`) {
				return // the key is the other's
			}
			for j := 1; j <= 2; j++ {
				if strings.Contains(got, `"data"`) && strings.Count(got, fmt.Sprintf(`"%d of %d"`, j, i)) != 1 {
					t.Errorf("%d: %s", i, got)
				}
			}
		})
	}
	wg.Wait()
	if n := count(h.types(id), schema.TypeCommandMessage); n != 24 {
		t.Errorf("%d messages are stored", n)
	}
}

// TestWhoSaysIt holds that the credential alone says who gives a command.
func TestWhoSaysIt(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.says(id, event(schema.TypeTurnStart, `{"turn_id":"t"}`))
	got := h.do("POST", eventsPath(id, ""), `{"events":[{"type":"user.message","content":"hi","by":"root"},{"type":"user.interrupt","by":"root"},
		{"type":"user.define_outcome","description":"x","by":"root"}]}`).sentData()
	h.do("POST", cloud+"/"+id+"/cancel", `{"by":"root"}`).OK(202)
	said := 0
	h.records(id, func(r schema.Record) {
		if strings.HasPrefix(string(r.Type), "command.") {
			said++
			var payload struct{ By string }
			if err := json.Unmarshal(r.Payload(), &payload); err != nil || payload.By != "ann" {
				t.Errorf("%s: %s", r.Type, r.Payload())
			}
		}
	})
	if said != 4 || strings.Contains(fmt.Sprint(got), `"by"`) {
		t.Errorf("%d commands, %q", said, got)
	}
}
