package sessions_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentstream/edge/dialect/qoder"
	"agentstream/schema"
)

const over = `{"state":"done","reason":"all is said"}`

// ended is a run that is over, with a child.
func (h *house) ended(run string) {
	h.t.Helper()
	h.says(run, event(schema.TypeRunLifecycle, `{"state":"running","reason":null}`), event(schema.TypeChildSpawn, `{"child_id":"kid"}`),
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
			was.ok(200)
			if h.head(run).State.Final() {
				anew()
			} else {
				h.says(run, event(schema.TypeRunLifecycle, over))
			}
			last := h.head(run).Last
			again := ask()
			if again.ok(200); again.header.Get("Idempotency-Replayed") != "true" || h.head(run).Last != last {
				t.Errorf("%d, first %s: stored again: %v", i, first, h.types(run))
			}
			if c.path == "/events" && again.body != was.body {
				t.Errorf("%d, first %s: %s, at first %s", i, first, again.body, was.body)
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
	const each = 6
	for i := range each {
		wg.Go(func() { h.do("POST", cloud+"/run", `{"title":"x"}`).ok(200) })
		wg.Go(func() { h.do("POST", cloud+"/run", `{"title":"y"}`, "Idempotency-Key", fmt.Sprint(i)).ok(200) })
		wg.Go(func() {
			h.do("POST", eventsPath("run", ""), `{"events":[{"type":"user.interrupt","session_thread_id":"`+kid+`"}]}`).ok(200)
		})
	}
	wg.Wait()
	types := h.types("run")
	if count(types, schema.TypeSessionUpdated) != 2*each || count(types, "command.cancel") != each || h.head("run").State != schema.StateDone {
		t.Errorf("%s: %v", h.head("run").State, types)
	}
	if !strings.Contains(h.last("run"), `"all is said"`) {
		t.Errorf("it has ended with %s", h.last("run"))
	}
	shown := slices.DeleteFunc(h.frames("run", ""), func(f shown) bool { return !strings.HasPrefix(f.typ, "session.status") })
	if len(shown) > 0 && shown[len(shown)-1].typ != "session.status_idle" {
		t.Errorf("it ends as %s", shown[len(shown)-1].typ)
	}
}

// TestBegunAnewMeanwhile begins a run anew between the opening and the closing of a change: it stays begun.
func TestBegunAnewMeanwhile(t *testing.T) {
	h := newHouse(t, false)
	h.ended("run")
	// The first append is the opening, the second the event, the third the closing.
	h.log.when(3, func() { h.says("run", event(schema.TypeCommandMessage, `{"content":"more"}`)) })
	kid := qoder.ThreadID("run", "kid")
	h.do("POST", eventsPath("run", ""), `{"events":[{"type":"user.interrupt","session_thread_id":"`+kid+`"}]}`).ok(200)
	if h.head("run").State.Final() {
		t.Errorf("a run that was begun anew has ended: %v", h.types("run"))
	}
}

// last gives the payload of a run's newest event.
func (h *house) last(run string) (payload string) {
	h.records(run, func(r schema.Record) { payload = string(r.Payload()) })
	return payload
}
