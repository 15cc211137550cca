package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentstream/persister"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

const over = `{"state":"done","reason":"all is said"}`

// ended is a run that is over, with a child.
func (h *house) ended(run string) {
	h.t.Helper()
	h.says(run, event(schema.TypeRunLifecycle, `{"state":"running","reason":null}`),
		event(schema.TypeChildSpawn, `{"child_id":"kid"}`),
		of("kid", event(schema.TypeTurnStart, `{"turn_id":"t"}`)), event(schema.TypeRunLifecycle, over))
}

func count(types []string, typ string) (n int) {
	for _, t := range types {
		if t == typ {
			n++
		}
	}
	return n
}

// TestRepeatsOverTheEnd repeats keyed requests after the run has ended, or has begun anew, since the first of them:
// nothing is stored twice.
func TestRepeatsOverTheEnd(t *testing.T) {
	interrupt := `{"type":"user.interrupt"}`
	onKid := func(run string) string {
		return fmt.Sprintf(`{"type":"user.interrupt","session_thread_id":%q}`, qoder.ThreadID(run, "kid"))
	}
	message := `{"type":"user.message","content":[{"type":"text","text":"on"}]}`
	for i, c := range []struct {
		method, path string
		body         func(run string) string
	}{
		{"POST", "", func(string) string { return `{"title":"x"}` }},
		{"POST", "/events", func(string) string { return `{"events":[` + message + `]}` }},
		{"POST", "/events", func(string) string { return `{"events":[` + interrupt + `]}` }},
		{"POST", "/events", func(string) string { return `{"events":[` + interrupt + `,` + message + `]}` }},
		{"POST", "/events", func(run string) string { return `{"events":[` + onKid(run) + `]}` }},
		{"POST", "/events", func(run string) string { return `{"events":[` + message + `,` + onKid(run) + `,` + interrupt + `]}` }},
		{"POST", "/archive", func(string) string { return `` }},
		{"DELETE", "", func(string) string { return `` }},
	} {
		for _, first := range []string{"ended", "open"} {
			h := newHouse(t, false)
			run := "run"
			h.ended(run)
			anew := func() { h.says(run, event(schema.TypeRunLifecycle, `{"state":"running","reason":null}`)) }
			if first == "open" {
				anew()
			}
			ask := func() answer {
				return h.do(c.method, cloud+"/"+run+c.path, c.body(run), "Idempotency-Key", fmt.Sprint("k", i))
			}
			was := ask()
			was.OK(200)
			if h.head(run).State.Final() {
				anew()
			} else {
				h.says(run, event(schema.TypeRunLifecycle, over))
			}
			last := h.head(run).Last
			again := ask()
			if again.OK(200); again.Header.Get("Idempotency-Replayed") != "true" || h.head(run).Last != last {
				t.Errorf("%d, first %s: stored again: %v", i, first, h.types(run))
			}
			if c.path == "/events" && again.Body != was.Body {
				t.Errorf("%d, first %s: %s, at first %s", i, first, again.Body, was.Body)
			}
		}
	}
}

// TestEndedTogether changes an ended run from many sides at once: all is stored once, and it is over as before.
func TestEndedTogether(t *testing.T) {
	h := newHouse(t, false)
	h.ended("run")
	kid := qoder.ThreadID("run", "kid")
	var wg sync.WaitGroup
	const each = 24
	for i := range each {
		wg.Go(func() { h.do("POST", cloud+"/run", `{"title":"x"}`).OK(200) })
		wg.Go(func() { h.do("POST", cloud+"/run", `{"title":"y"}`, "Idempotency-Key", fmt.Sprint(i)).OK(200) })
		wg.Go(func() {
			h.do("POST", eventsPath("run", ""), `{"events":[{"type":"user.interrupt","session_thread_id":"`+kid+`"}]}`).OK(200)
		})
	}
	wg.Wait()
	types := h.types("run")
	if count(types, schema.TypeSessionUpdated) != 2*each || count(types, "command.cancel") != each ||
		h.head("run").State != schema.StateDone {
		t.Errorf("%s: %v", h.head("run").State, types)
	}
	if n := count(types, schema.TypeRunLifecycle); n != 2 || h.end("run") != over {
		t.Errorf("%d lifecycles, it has ended with %s", n, h.end("run"))
	}
	shown := slices.DeleteFunc(h.frames("run", ""),
		func(f shown) bool { return !strings.HasPrefix(f.typ, "session.status") })
	if len(shown) > 0 && shown[len(shown)-1].typ != "session.status_idle" {
		t.Errorf("it ends as %s", shown[len(shown)-1].typ)
	}
}

// TestBegunAnewMeanwhile begins a run anew between the look at it and the append of a change: it stays begun.
func TestBegunAnewMeanwhile(t *testing.T) {
	h := newHouse(t, false)
	h.ended("run")
	h.log.when(1, func() { h.says("run", event(schema.TypeCommandMessage, `{"content":"more"}`)) })
	kid := qoder.ThreadID("run", "kid")
	h.do("POST", eventsPath("run", ""), `{"events":[{"type":"user.interrupt","session_thread_id":"`+kid+`"}]}`).OK(200)
	if types := h.types("run"); h.head("run").State.Final() || count(types, "command.cancel") != 1 {
		t.Errorf("a run that was begun anew is %s: %v", h.head("run").State, types)
	}
}

// TestNodeDiesInBetween changes runs through a node that dies behind its first append: the change is whole, and its
// repeat at another node stores nothing.
func TestNodeDiesInBetween(t *testing.T) {
	outcome := `{"type":"user.define_outcome","description":"all is well"}`
	onKid := fmt.Sprintf(`{"type":"user.interrupt","session_thread_id":%q}`, qoder.ThreadID("run", "kid"))
	for _, c := range []struct {
		method, path, body string
		want               string // what is stored
	}{
		{"POST", "", `{"title":"x"}`, "session.updated"},
		{"POST", "/events", `{"events":[{"type":"user.interrupt"}]}`, "command.cancel"},
		{"POST", "/events", `{"events":[` + onKid + `]}`, "command.cancel"},
		{"POST", "/events", `{"events":[{"type":"system.message","content":"a"}]}`, "command.message"},
		{"POST", "/events", `{"events":[` + outcome + `]}`, "run.lifecycle planning command.redirect"},
		{"POST", "/threads/" + qoder.ThreadID("run", "kid") + "/archive", ``, "session.archived"},
		{"POST", "/archive", ``, "session.archived"},
		{"DELETE", "", ``, "session.deleted"},
		{"POST", "/archive", ``, "session.archived run.lifecycle done,session"}, // of a session that rests
	} {
		for _, with := range [][]string{nil, {"Idempotency-Key", "k"}} {
			h := newHouse(t, false)
			before := schema.Seq(4)
			if h.ended("run"); strings.HasSuffix(c.want, ",session") {
				h.says("run", event(schema.TypeCommandMessage, `{"content":"on"}`),
					event(schema.TypeTurnStart, `{"turn_id":"u"}`), event(schema.TypeTurnEnd, `{"turn_id":"u"}`))
				before = 7
			}
			h.log.dies(1)
			first := h.do(c.method, cloud+"/run"+c.path, c.body, with...)
			h.log.lives()
			if first.OK(200); h.stored("run", before) != c.want {
				t.Errorf("%s %s %s, %v: %s, want %s", c.method, c.path, c.body, with, h.stored("run", before), c.want)
			}
			if final := h.head("run").State.Final(); final == strings.Contains(c.want, "planning") {
				t.Errorf("%s %s %s, %v: it is %s", c.method, c.path, c.body, with, h.head("run").State)
			}
			if with == nil {
				continue
			}
			last := h.head("run").Last
			again := h.do(c.method, cloud+"/run"+c.path, c.body, with...)
			if again.OK(200); h.head("run").Last != last || again.Body != first.Body {
				t.Errorf("%s %s %s: a repeat answers %s and stores %s", c.method, c.path, c.body, again.Body, h.stored("run", last))
			}
		}
	}
}

// TestArchiveEnds archives sessions in which nothing is under way: their runs are over with it, nobody who reads them
// as sessions is shown more, and what looks for runs that are over finds them. Others are left to who ends them.
func TestArchiveEnds(t *testing.T) {
	const end = `{"state":"done","reason":"archived","session":true}`
	turn := []schema.Event{event(schema.TypeTurnStart, `{"turn_id":"t"}`)}
	for _, tt := range []struct {
		name string
		says []schema.Event
		want bool // it ends
	}{
		{"new", nil, true},
		{"answered", append(turn[:1:1], event(schema.TypeTurnEnd, `{"turn_id":"t"}`)), true},
		{"told something", []schema.Event{event(schema.TypeCommandMessage, `{"content":"a","role":"system"}`)}, true},
		{"in a turn", turn, false},
		{"asked", []schema.Event{event(schema.TypeCommandMessage, `{"content":"a"}`)}, false},
		{"child in a turn", []schema.Event{event(schema.TypeChildSpawn, `{"child_id":"kid"}`), of("kid", turn[0])}, false},
	} {
		for _, with := range [][]string{nil, {"Idempotency-Key", "k"}} {
			h := newHouse(t, true)
			id := h.create(plainBody)
			for _, e := range tt.says {
				h.says(id, e)
			}
			path := cloud + "/" + id + "/archive"
			first := h.do("POST", path, "", with...)
			first.OK(200)
			last := h.head(id).Last
			if final := h.head(id).State.Final(); final != tt.want || final && h.last(id) != end {
				t.Errorf("%s, %v: it is %q: %v", tt.name, with, h.head(id).State, h.types(id))
			}
			again := h.do("POST", path, "", with...)
			if again.OK(200); h.head(id).Last != last || with != nil && again.Body != first.Body {
				t.Errorf("%s, %v: a repeat answers %s and stores %v", tt.name, with, again.Body, h.types(id)[last:])
			}
			if frames := h.frames(id, ""); frames[len(frames)-1].typ != "session.status_terminated" {
				t.Errorf("%s, %v: it ends with %s", tt.name, with, frames[len(frames)-1].typ)
			}
			if streamed := h.opened(cloud + "/" + id +
				"/events/stream")(); streamed[len(streamed)-1].typ != "session.status_terminated" {
				t.Errorf("%s, %v: the stream ends with %s", tt.name, with, streamed[len(streamed)-1].typ)
			}
			runs, err := h.store.ListEnded(t.Context(), persister.EndedQuery{Through: "99991231", Limit: 10})
			if err != nil || (len(runs) == 1) != tt.want {
				t.Errorf("%s, %v: %d runs are over, %v", tt.name, with, len(runs), err)
			}
		}
	}
}

// TestArchiveMeanwhile lets something begin between the look at a session and its end: it is not ended over that.
func TestArchiveMeanwhile(t *testing.T) {
	for _, with := range [][]string{nil, {"Idempotency-Key", "k"}} {
		h := newHouse(t, false)
		id := h.create(plainBody)
		h.log.when(1, func() { h.says(id, event(schema.TypeTurnStart, `{"turn_id":"t"}`)) })
		h.do("POST", cloud+"/"+id+"/archive", "", with...).OK(200)
		if types := h.types(id); h.head(id).State.Final() || count(types, schema.TypeSessionArchived) != 1 {
			t.Errorf("%v: %v", with, types)
		}
	}
}

// TestSaidToEnded says to a run that is over what somebody must act on, which begins it anew, and what nobody will,
// which leaves it over.
func TestSaidToEnded(t *testing.T) {
	const (
		system    = `{"type":"system.message","content":"be brief"}`
		user      = `{"type":"user.message","content":"on"}`
		outcome   = `{"type":"user.define_outcome","description":"all is well"}`
		interrupt = `{"type":"user.interrupt"}`
	)
	for _, tt := range []struct {
		events []string
		over   bool   // it stays over
		want   string // what is stored
	}{
		{[]string{system}, true, "command.message"},
		{[]string{system, system}, true, "command.message command.message"},
		{[]string{system, user}, false, "command.message command.message"},
		{[]string{user, system}, false, "command.message command.message"},
		{[]string{outcome}, false, "run.lifecycle planning command.redirect"},
		{[]string{outcome, system, user}, false, "run.lifecycle planning command.redirect command.message command.message"},
		{[]string{user, outcome}, false, "command.message command.redirect"},
		{[]string{interrupt, outcome}, false, "command.cancel run.lifecycle planning command.redirect"},
		{[]string{system, outcome}, false, "command.message run.lifecycle planning command.redirect"},
	} {
		for _, with := range [][]string{nil, {"Idempotency-Key", "k"}} {
			h := newHouse(t, false)
			h.ended("run")
			body := `{"events":[` + strings.Join(tt.events, ",") + `]}`
			first := h.do("POST", eventsPath("run", ""), body, with...)
			if got := first.sentData(); len(got) != len(tt.events) {
				t.Errorf("%s is answered with %q", body, got)
			}
			if got := h.stored("run", 4); got != tt.want {
				t.Errorf("%s, %v: %s\nwant %s", body, with, got, tt.want)
			}
			if h.head("run").State.Final() != tt.over || tt.over && h.end("run") != over {
				t.Errorf("%s, %v: it is %s, with %s", body, with, h.head("run").State, h.end("run"))
			}
			if with == nil {
				continue
			}
			last := h.head("run").Last
			if again := h.do("POST", eventsPath("run", ""), body, with...); again.Body != first.Body ||
				h.head("run").Last != last {
				t.Errorf("%s: a repeat answers %s: %v", body, again.Body, h.types("run"))
			}
		}
	}
}

// stored returns the types of a run's events behind a place; of lifecycles also the state, and whether they are marked.
func (h *house) stored(run string, after schema.Seq) string {
	h.t.Helper()
	var all []string
	h.records(run, func(r schema.Record) {
		if r.Seq <= after {
			return
		}
		typ := string(r.Type)
		if typ == schema.TypeRunLifecycle {
			var l struct {
				State   string
				Session bool
			}
			if err := json.Unmarshal(r.Payload(), &l); err != nil {
				h.t.Fatal(err)
			}
			if typ += " " + l.State; l.Session {
				typ += ",session"
			}
		}
		all = append(all, typ)
	})
	return strings.Join(all, " ")
}

// end returns the payload of a run's newest lifecycle.
func (h *house) end(run string) (payload string) {
	h.records(run, func(r schema.Record) {
		if string(r.Type) == schema.TypeRunLifecycle {
			payload = string(r.Payload())
		}
	})
	return payload
}

// last returns the payload of a run's newest event.
func (h *house) last(run string) (payload string) {
	h.records(run, func(r schema.Record) { payload = string(r.Payload()) })
	return payload
}
