package producers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentstream/producers"
	"agentstream/schema"
)

// huge is more than an event can hold, in kinds of bytes that matter to JSON.
var huge = map[string]string{
	"plain": strings.Repeat("x", 10<<20), "nul": strings.Repeat("\x00", 600<<10),
	"broken": strings.Repeat("\xff\xc3", 400<<10),
	"quotes": strings.Repeat("\"\\\n", 300<<10), "wide": strings.Repeat("日本€", 200<<10),
}

// TestRawInput: JSON that is handed over as it is stays what it is, and what is no JSON does not get into an
// event, let alone change it.
func TestRawInput(t *testing.T) {
	for raw, good := range map[string]bool{
		"{\n  \"a\": [1,\r\n 2]\n}": true, `{"a":"\ud800"}`: true, `"\u0000"`: true, `1`: true, ` {} `: true, "null": true,
		`{"a":`: false, `1,"ok":false`: false, `{}}`: false, "\x00": false, "{\"a\":\"\xff\"}": false, `{} {}`: false,
		"\"\n\"": false,
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000): false,
	} {
		var s told
		r := newRun(t, &s)
		turn, err := r.Turn(t.Context())
		must(t, err)
		m, err := turn.Message(producers.MessageInfo{})
		must(t, err)
		c, err := m.Call("c1", "t")
		must(t, err)
		check := func(what string, err error) {
			t.Helper()
			if (err == nil) != good {
				t.Errorf("%s %.40q: %v", what, raw, err)
			}
		}
		check("input", c.Ready(json.RawMessage(raw)))
		if !good {
			must(t, c.Ready(json.RawMessage{}))
		}
		must(t, m.End("tool_use", nil))
		check("output", c.Finish(json.RawMessage(raw)))
		if !good {
			must(t, c.Finish(nil))
		}
		check("answer", r.Answer(t.Context(), "q", json.RawMessage(raw)))
		must(t, turn.End("end_turn"), r.Finish(t.Context()))
		if complaint := unbalanced(s.events); complaint != "" || strings.Contains(s.story(), `"ok":false`) {
			t.Errorf("%q: %s\n%s", raw, complaint, s.story())
		}
		for _, e := range s.events {
			if strings.ContainsAny(string(e.Payload), "\r\n") {
				t.Errorf("several lines: %s", e.Payload)
			}
		}
	}
}

// TestDeepChildren: a child that could not say anything is not announced.
func TestDeepChildren(t *testing.T) {
	var s told
	r := newRun(t, &s)
	lane, err := &r.Lane, error(nil)
	deep := 0
	for ; ; deep++ {
		var next *producers.Lane
		if next, err = lane.Spawn(t.Context(), fmt.Sprintf("%0*d", schema.MaxRunID, deep), "", ""); err != nil {
			break
		}
		lane = next
	}
	before := len(s.events)
	if deep < 20 || !errors.Is(err, schema.ErrMalformed) || s.events[before-1].Type != schema.TypeRunLifecycle {
		t.Errorf("at a depth of %d: %v", deep, err)
	}
	must(t, r.Cancel(t.Context(), "enough"))
	if len(s.events) != before+deep+1 {
		t.Errorf("%d ends of %d lanes", len(s.events)-before, deep+1)
	}
}

// TestSpawnTwice: a child of an earlier life of the agent is not announced again.
func TestSpawnTwice(t *testing.T) {
	var s told
	r := newRun(t, &s)
	_, err := r.Spawn(t.Context(), "run_a", "", "")
	must(t, err)
	var o producers.Open
	for i := range s.events {
		o.See(&s.events[i])
	}
	second, err := producers.NewRun(producers.RunConfig{Sink: &s, RunID: "run_1", Open: &o})
	must(t, err)
	must(t, second.Recover(t.Context(), "again"))
	before := len(s.events)
	if _, err := second.Spawn(t.Context(), "run_a", "", ""); !errors.Is(err, producers.ErrOpen) ||
		len(s.events) != before {
		t.Errorf("%v, %d events", err, len(s.events)-before)
	}
}
