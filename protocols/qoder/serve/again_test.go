package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// wireFrame is a frame as it came over the wire; id is "" where it had none.
type wireFrame struct{ id, typ, data string }

// opened is a stream of which the headers have come; what it gives is read until it ends.
func (h *house) opened(path string, headers ...string) func() []wireFrame {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	h.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", h.url+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := h.http.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		h.t.Fatalf("%s: %d", path, resp.StatusCode)
	}
	return func() (all []wireFrame) {
		h.t.Helper()
		defer resp.Body.Close()
		f := wireFrame{}
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			switch name, value, _ := strings.Cut(s.Text(), ": "); {
			case name == "id":
				f.id = value
			case name == "event":
				f.typ = value
			case name == "data":
				f.data = value
			case s.Text() == "" && f.data != "":
				all = append(all, f)
				f = wireFrame{}
			}
		}
		if ctx.Err() != nil {
			h.t.Fatalf("%s does not end: %v", path, all)
		}
		return all
	}
}

const deltas = "event_deltas[]=agent.message&event_deltas[]=agent.thinking"

// speech is a message of the assistant up to its last delta.
func speech(lane, id string, pieces ...string) []schema.Event {
	events := []schema.Event{of(lane, event(schema.TypeMessageStart, `{"message_id":"`+id+`","role":"assistant"}`)),
		of(lane, event(schema.TypeBlockStart, `{"index":0,"kind":"text"}`))}
	for _, text := range pieces {
		events = append(events, of(lane, event(schema.TypeTextDelta, `{"text":"`+text+`","index":0}`)))
	}
	return events
}

func ended(lane, id, text string) []schema.Event {
	return []schema.Event{of(lane, event(schema.TypeBlockEnd, `{"index":0}`)),
		of(lane, event(schema.TypeMessageEnd, `{"message_id":"`+id+`","content":[{"type":"text","text":"`+text+
			`"}],"stop_reason":"end_turn"}`))}
}

func (h *house) each(run string, events ...schema.Event) {
	h.t.Helper()
	for _, e := range events {
		h.says(run, e)
	}
}

// previewed puts together what previews said; complaint says what no client could put together.
func previewed(frames []wireFrame) (texts map[string]string, complaint string) {
	texts = map[string]string{}
	for _, f := range frames {
		switch f.typ {
		case "event_start":
			texts[between(f.data, `"event":{"id":"`)] = ""
		case "event_delta":
			id := between(f.data, `"event_id":"`)
			if _, ok := texts[id]; !ok {
				return texts, "a piece of " + id + " that has not begun"
			}
			texts[id] += between(f.data, `"text","text":"`)
		}
	}
	return texts, ""
}

func between(s, from string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, `"`)
	return s
}

// TestAgainOfWhatIsShown: a stream that begins with what comes next is told the beginning of the message that is
// under way in what it shows, and nothing of messages that came whole before, however long a child has been speaking.
func TestAgainOfWhatIsShown(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.each(id, event(schema.TypeChildSpawn, `{"child_id":"kid"}`))
	h.each(id, speech("kid", "k", "for a long ")...)
	h.each(id, speech("", "a", "over")...)
	h.each(id, ended("", "a", "over")...)
	h.each(id, speech("", "b", "under ")...)
	session := h.opened(v1 + "/" + id + "/events/stream?" + deltas)
	kid := h.opened(v1 + "/" + id + "/threads/" + qoder.ThreadID(id, "kid") + "/stream?" + deltas)
	h.each(id, of("kid", event(schema.TypeTextDelta, `{"text":"time","index":0}`)))
	h.each(id, event(schema.TypeTextDelta, `{"text":"way","index":0}`))
	h.each(id, ended("", "b", "under way")...)
	h.each(id, ended("kid", "k", "for a long time")...)
	h.do("POST", cloud+"/"+id+"/archive", "").OK(200)
	for name, want := range map[string]string{"session": "under way", "kid": "for a long time"} {
		got := map[string]func() []wireFrame{"session": session, "kid": kid}[name]()
		texts, complaint := previewed(got)
		if complaint != "" || len(texts) != 1 {
			t.Fatalf("%s: %s %q", name, complaint, texts)
		}
		for event, text := range texts {
			if i := slices.IndexFunc(got, func(f wireFrame) bool { return f.id == event }); text != want || i < 0 {
				t.Errorf("%s: %q, came %v", name, text, i)
			}
		}
	}
}

// TestAgainBehindACursor: who goes on behind an event within a message gets exactly the rest, and of the preview
// what it takes to understand that: from its beginning, without ids, so that the place in the stream stays what it
// was. Who goes on behind a preview's own frame has had its beginning.
func TestAgainBehindACursor(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(`{"agent":"a","environment_id":"e","incremental_streaming_enabled":true}`)
	h.each(id, speech("", "a", "over")...)
	h.each(id, ended("", "a", "over")...)
	h.each(id, speech("", "b", "o", "n", "e", " ", "t", "w")...)
	h.each(id, ended("", "b", "one two")...) // the last letter is told at the end
	h.each(id, event(schema.TypeTurnEnd, `{"turn_id":"t"}`))
	path := cloud + "/" + id + "/events/stream"
	live, later := h.opened(path+"?"+deltas), map[int]func() []wireFrame{}
	cursors := h.previewIDs(id)
	for i, c := range cursors {
		later[i] = h.opened(path+"?"+deltas, "Last-Event-ID", c)
	}
	h.do("POST", cloud+"/"+id+"/archive", "").OK(200)
	all := live()
	for i, c := range cursors {
		got := later[i]()
		own := strings.HasPrefix(all[i].typ, "event_")
		if _, complaint := previewed(got); complaint != "" && !own {
			t.Errorf("behind %s (%s): %s", c, all[i].typ, complaint)
		}
		rest := slices.DeleteFunc(slices.Clone(got), func(f wireFrame) bool { return f.id == "" })
		if !slices.Equal(rest, all[i+1:]) {
			t.Errorf("behind %s (%s): %d frames, want %d", c, all[i].typ, len(rest), len(all)-i-1)
		}
		for j, f := range got {
			if f.id == "" && (own || !strings.HasPrefix(f.typ, "event_") || j > 0 && got[j-1].id != "") {
				t.Errorf("behind %s (%s): %v is given again in place %d", c, all[i].typ, f, j)
			}
		}
	}
}

// TestBehindWhatIsBeingWritten: the id of a message that is still being written, which previews name in their JSON, is
// a place to go on: what was sent of it is skipped, what comes of it is not. The id of a message that nobody has begun
// is none.
func TestBehindWhatIsBeingWritten(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(`{"agent":"a","environment_id":"e"}`)
	h.each(id, speech("", "a", "one ", "two ")...)
	path := cloud + "/" + id + "/events/stream"
	first := h.opened(path + "?" + deltas)
	h.each(id, event(schema.TypeTextDelta, `{"text":"three"}`))
	name := h.beingWritten(path + "?" + deltas)
	later := h.opened(path+"?"+deltas, "Last-Event-ID", name)
	h.each(id, event(schema.TypeTextDelta, `{"text":" four"}`))
	h.each(id, ended("", "a", "one two three four")...)
	h.each(id, event(schema.TypeTurnEnd, `{"turn_id":"t"}`))
	h.do("POST", cloud+"/"+id+"/archive", "").OK(200)
	all, rest := first(), later()
	if len(rest) == 0 || !slices.Equal(rest, all[len(all)-len(rest):]) {
		t.Fatalf("%d frames, not the last of %d: %v", len(rest), len(all), rest)
	}
	text := ""
	for _, f := range rest {
		text += f.typ + " " + f.data + "\n"
	}
	if strings.Contains(text, "event_start") || strings.Contains(text, `"three"`) || !strings.Contains(text, " four") ||
		!strings.Contains(text, "agent.message ") {
		t.Errorf("behind the message's id came %s", text)
	}
}

// beingWritten returns the id that the first preview of a stream names.
func (h *house) beingWritten(path string) string {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), "GET", h.url+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := h.http.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		var o struct{ Event struct{ ID, Type string } }
		if ok && json.Unmarshal([]byte(data), &o) == nil && o.Event.Type == "agent.message" {
			return o.Event.ID
		}
	}
	h.t.Fatal("no preview names an event")
	return ""
}

// previewIDs returns the ids of all frames of a session for who asks for previews.
func (h *house) previewIDs(run string) (ids []string) {
	h.t.Helper()
	req, err := spoken.Open(dialect.Input{Stream: "session", Path: map[string]string{"run": run},
		Query: url.Values{"event_deltas[]": {"agent.message", "agent.thinking"}}})
	if err != nil {
		h.t.Fatal(err)
	}
	p := spoken.Projector(req)
	var out dialect.Frames
	h.records(run, func(r schema.Record) {
		out.Reset()
		if err := p.Project(&out, r); err != nil {
			h.t.Fatal(err)
		}
		for _, f := range out.List {
			ids = append(ids, string(f.Token))
		}
	})
	return ids
}

// TestStreamOfWhatIsClosed: a stream that begins with what comes next, of a session or a thread that is archived, says
// so and ends: nobody waits for what never comes.
func TestStreamOfWhatIsClosed(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.each(id, event(schema.TypeChildSpawn, `{"child_id":"kid"}`))
	h.each(id, speech("kid", "k", "a")...)
	kid := qoder.ThreadID(id, "kid")
	h.do("POST", v1+"/"+id+"/threads/"+kid+"/archive", "").OK(200)
	h.each(id, speech("kid", "l", "still")...)
	got := h.opened(v1 + "/" + id + "/threads/" + kid + "/stream?" + deltas)()
	if len(got) != 1 || got[0].typ != "session.thread_status_terminated" || got[0].id == "" {
		t.Errorf("thread: %v", got)
	}
	h.do("POST", v1+"/"+id+"/archive", "").OK(200)
	h.each(id, speech("", "m", "still")...)
	for _, path := range []string{"/events/stream", "/events/stream?" + deltas} {
		if got := h.opened(v1 + "/" + id + path)(); len(got) != 1 || got[0].typ != "session.status_terminated" ||
			got[0].id == "" {
			t.Errorf("%s: %v", path, got)
		}
	}
	if got := h.opened(cloud + "/" + id + "/events/stream")(); got[len(got)-1].typ != "session.status_terminated" {
		t.Errorf("%v", got)
	}
}
