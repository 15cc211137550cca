package schema_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"agentstream/schema"
)

var allStates = []schema.RunState{"planning", "awaiting_approval", "running", "paused", "redirecting", "done",
	"aborted", "error"}

func lifecycle(s schema.RunState) []byte {
	return []byte(`{"state":"` + string(s) + `","reason":null}`)
}

// TestEnded walks all states: after the three final ones only a follow-up enters the log.
func TestEnded(t *testing.T) {
	for _, s := range allStates {
		final := s == "done" || s == "aborted" || s == "error"
		if s.Final() != final {
			t.Errorf("%s: Final %v", s, s.Final())
		}
		for name, e := range map[string]schema.Event{
			"delta":           {Type: "text.delta", Payload: []byte(`{"text":"x"}`)},
			"tool end":        {Type: "tool.end"},
			"cancel":          {Type: "command.cancel"},
			"child delta":     {Type: "text.delta", ChildID: "run_c"},
			"child message":   {Type: "command.message", ChildID: "run_c"},
			"child running":   {Type: "run.lifecycle", ChildID: "run_c", Payload: lifecycle("running")},
			"custom":          {Type: "custom.x"},
			"done again":      {Type: "run.lifecycle", Payload: lifecycle("done")},
			"error after":     {Type: "run.lifecycle", Payload: lifecycle("error")},
			"hidden reopener": {Type: "run.lifecycle", Payload: []byte(`{"state":"done","State":"running"}`)},
		} {
			h := schema.Head{Last: 4, LastID: "evt_4", State: s}
			before := h
			err := h.Advance(e.Type, e.ChildID, "evt_5", e.Payload)
			if final != errors.Is(err, schema.ErrEnded) || !final && (err != nil || h.Last != 5 || h.LastID != "evt_5") {
				t.Errorf("%s in %s: %v, head %+v", name, s, err, h)
			}
			if final && h != before {
				t.Errorf("%s in %s: refused, but the head moved: %+v", name, s, h)
			}
		}
	}
}

func TestReopen(t *testing.T) {
	for _, ended := range []schema.RunState{schema.StateDone, schema.StateAborted, schema.StateError} {
		h := schema.Head{Last: 9, State: ended}
		if err := h.Advance("command.message", "", "evt_10", []byte(`{"content":"more"}`)); err != nil ||
			h.State != schema.StatePlanning || h.Last != 10 {
			t.Errorf("message after %s: %v %+v", ended, err, h)
		}
		if err := h.Advance("text.delta", "", "evt_11", []byte(`{"text":"x"}`)); err != nil {
			t.Errorf("reopened run refuses: %v", err)
		}
		for _, s := range allStates {
			h := schema.Head{Last: 9, State: ended}
			err := h.Advance("run.lifecycle", "", "evt_10", lifecycle(s))
			if s.Final() != errors.Is(err, schema.ErrEnded) || !s.Final() && h.State != s {
				t.Errorf("%s after %s: %v %+v", s, ended, err, h)
			}
		}
	}
}

// TestLate: what is about the session, and what the system says, may follow the end and moves nothing but the number.
func TestLate(t *testing.T) {
	for _, e := range []schema.Event{
		{Type: schema.TypeSessionUpdated, Payload: []byte(`{"title":"x"}`)},
		{Type: schema.TypeSessionArchived},
		{Type: schema.TypeSessionArchived, ChildID: "run_c"},
		{Type: schema.TypeSessionDeleted},
		{Type: schema.TypeCommandMessage, Payload: []byte(`{"content":"be brief","role":"s\u0079stem"}`)},
	} {
		for _, ended := range []schema.RunState{schema.StateDone, schema.StateAborted, schema.StateError} {
			h := schema.Head{Last: 9, State: ended}
			if err := h.Advance(e.Type, e.ChildID, "evt_10", e.Payload); err != nil || h.State != ended ||
				h.Last != 10 || h.LastID != "evt_10" {
				t.Errorf("%s after %s: %v %+v", e.Type, ended, err, h)
			}
		}
	}
	for _, info := range schema.Types() {
		want := info.Family == schema.FamilySession && info.Name != schema.TypeSessionCreated
		h := schema.Head{Last: 9, State: schema.StateDone}
		if err := h.Advance(info.Name, "run_c", "evt_10", nil); info.Late != want || want != (err == nil) || !want &&
			!errors.Is(err, schema.ErrEnded) {
			t.Errorf("%s: late %v, behind the end %v", info.Name, info.Late, err)
		}
	}
}

// TestLifecycleOfChildren: a child's end is not the run's.
func TestLifecycleOfChildren(t *testing.T) {
	h := schema.Head{State: schema.StateRunning}
	if err := h.Advance("run.lifecycle", "run_a", "evt", lifecycle("error")); err != nil ||
		h.State != schema.StateRunning {
		t.Errorf("after the child's end: %v %+v", err, h)
	}
	if err := h.Advance("run.lifecycle", "", "evt", lifecycle("done")); err != nil || h.State != schema.StateDone {
		t.Errorf("after the end: %v %+v", err, h)
	}
	if (schema.Head{}).HasEvents() || !h.HasEvents() {
		t.Error("Exists")
	}
}

func TestAdvanceRefusesBadLifecycle(t *testing.T) {
	for _, p := range []string{"", "{}", "null", "[]", `{"state":1}`, `{"state":"Done"}`, `{"State":"done"}`,
		`{"state":"done"`, `{"state":"done","reason":1}`,
		`{"state":"done"}x`, `{"state":"done","state":null}`} {
		h := schema.Head{Last: 1, State: schema.StateRunning}
		if err := h.Advance("run.lifecycle", "", "evt", []byte(p)); !errors.Is(err, schema.ErrMalformed) || h.Last != 1 {
			t.Errorf("%s: %v %+v", p, err, h)
		}
	}
	for p, reason := range map[string]string{
		`{"state":"error","reason":"a\u0062"}`: "ab", `{"reason":"x","state":"error","reason":null}`: "",
		` { "state" : "error" } `:              "",
		`{"st\u0061te":"error","Reason":"no"}`: "",
	} {
		l, err := schema.ParseLifecycle([]byte(p))
		got := ""
		if l.Reason != nil {
			got = *l.Reason
		}
		if err != nil || l.State != schema.StateError || got != reason {
			t.Errorf("%s: %+v %v", p, l, err)
		}
	}
}

// TestAskTypes: AskEventOf reads events of the types of AskTypes, and of no others.
func TestAskTypes(t *testing.T) {
	payload := []byte(`{"request_id":"r","call_id":"c","tool":"t","state":"done"}`)
	for _, info := range schema.Types() {
		_, ok := schema.AskEventOf(1, time.Time{}, info.Name, "", payload)
		if want := slices.Contains(schema.AskTypes, info.Name); ok != want {
			t.Errorf("%s is read: %v, want %v", info.Name, ok, want)
		}
	}
}
