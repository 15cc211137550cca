package schema_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/schematest"
)

// asking makes events of lines "child|type payload".
func asking(lines ...string) (s schematest.Scenario) {
	for _, line := range lines {
		child, rest, _ := strings.Cut(line, "|")
		typ, payload, _ := strings.Cut(rest, " ")
		e := schema.Event{Type: typ, ChildID: child, Payload: []byte(payload)}
		s.Events = append(s.Events, e)
	}
	return s
}

// waitsOf returns what waits, as every reader has it: the fold, the reading of the run, and the merge of a list. They
// must agree.
func waitsOf(t *testing.T, s schematest.Scenario) string {
	t.Helper()
	var f schema.Fold
	reading := assemble.New(assemble.Limits{})
	var asks []schema.AskEvent
	for _, e := range schematest.NumberEvents(testRun, s) {
		f.Add(&e)
		reading.NextEvent(&e)
		if a, ok := schema.AskEventOf(e.Seq, time.Time{}, e.Type, e.ChildID, e.Payload); ok {
			asks = append(asks, a)
		}
	}
	text := func(list []schema.Ask) string {
		var b strings.Builder
		for _, a := range list {
			fmt.Fprintf(&b, "%s/%s%s ", a.Child, a.Request, strings.TrimPrefix("("+a.Call+")", "()"))
		}
		return strings.TrimSpace(b.String())
	}
	got := text(f.Questions().Open())
	if other := text(reading.Questions().Open()); other != got {
		t.Errorf("the reading has %q, the fold %q", other, got)
	}
	for cut := range asks {
		// A store reads from schema.AskWindow before a new question on: here that is all of it.
		from := cut
		if slices.ContainsFunc(asks[cut:], func(e schema.AskEvent) bool { return !e.Answer() }) {
			from = 0
		}
		if other := text(schema.MergeAsks(schema.MergeAsks(nil, asks[:cut]), asks[from:])); other != got {
			t.Errorf("the list has %q, cut at %d, the fold %q", other, cut, got)
		}
	}
	open := 0
	for _, in := range f.Inputs {
		if in.Open() {
			open++
		}
	}
	if open != f.Questions().Requests() {
		t.Errorf("%d inputs of the snapshot are open, %d wait", open, f.Questions().Requests())
	}
	return got
}

// TestWaits: what ends a question, and what does not, in every reader.
func TestWaits(t *testing.T) {
	const (
		begin, ask    = `|turn.start {"turn_id":"t"}`, `|input.requested {"request_id":"q","call_id":"c"}`
		call          = `|tool.start {"call_id":"c","tool":"x","input":{},"permission":"ask"}`
		another       = `|tool.start {"call_id":"c","tool":"x","input":{"a":1},"permission":"ask"}`
		plain         = `|tool.start {"call_id":"c","tool":"x","input":{}}`
		other         = `|input.requested {"request_id":"q","call_id":"c","prompt":"a number, please"}`
		kid           = `kid|input.requested {"request_id":"q"}`
		cancel        = `|command.cancel {}`
		interrupt     = `|command.cancel {"interrupt":true}`
		ended, broken = `|turn.end {"turn_id":"t","stop_reason":"end_turn"}`,
			`|turn.end {"turn_id":"t","stop_reason":"cancelled"}`
		held    = `|turn.end {"turn_id":"t","stop_reason":"interrupted"}`
		aborted = `|run.lifecycle {"state":"aborted"}`
		anew    = `|command.message {"content":"go on"}`
		running = `|run.lifecycle {"state":"running"}`
		speaks  = `|message.start {"message_id":"m","role":"assistant"}`
	)
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"a request":                         {[]string{ask}, "/q(c)"},
		"a call":                            {[]string{call}, "/(c)"},
		"a request about a call":            {[]string{call, ask}, "/q(c)"},
		"a call that a request is about":    {[]string{ask, call}, "/q(c)"},
		"the same again":                    {[]string{ask, ask, call, call}, "/q(c)"},
		"an answer":                         {[]string{ask, `|command.answer {"request_id":"q"}`}, ""},
		"an answer by the call":             {[]string{ask, `|command.answer {"request_id":"c"}`}, ""},
		"an answer to another":              {[]string{ask, `|command.answer {"request_id":"p"}`}, "/q(c)"},
		"an answer of another lane":         {[]string{kid, `|command.answer {"request_id":"q"}`}, ""},
		"an answer of the lane":             {[]string{kid, ask, `|command.answer {"request_id":"q"}`}, "kid/q"},
		"a question once more":              {[]string{ask, `|input.answered {"request_id":"q"}`, ask}, ""},
		"a question once more, and a state": {[]string{ask, `|command.answer {"request_id":"q"}`, running, ask}, "/q(c)"},
		"a question once more, and a turn":  {[]string{ask, `|command.answer {"request_id":"q"}`, begin, ask}, "/q(c)"},
		"another question of its id":        {[]string{ask, `|input.answered {"request_id":"q"}`, other}, "/q(c)"},
		"a question behind its answer":      {[]string{`|input.answered {"request_id":"q"}`, ask}, ""},
		"a call that asks once more":        {[]string{call, `|tool.end {"call_id":"c","ok":true}`, call}, ""},
		"another call of its id that asks":  {[]string{call, `|tool.end {"call_id":"c","ok":true}`, another}, "/(c)"},
		"another call of its id, once more": {[]string{plain, `|tool.end {"call_id":"c","ok":true}`, another, call}, "/(c)"},
		"a call of its id that never asked": {[]string{plain, `|tool.end {"call_id":"c","ok":true}`, another}, "/(c)"},
		"a call that asks behind its end":   {[]string{`|tool.end {"call_id":"c","ok":true}`, call}, ""},
		"a call's id in another message":    {[]string{call, `|tool.end {"call_id":"c","ok":true}`, speaks, call}, "/(c)"},
		"the end of the call":               {[]string{call, ask, `|tool.end {"call_id":"c","ok":false}`}, ""},
		"the end of another lane's call":    {[]string{call, `kid|tool.end {"call_id":"c","ok":false}`}, "/(c)"},
		"the end of the turn":               {[]string{begin, ask, ended}, "/q(c)"},
		"the interrupt of the question":     {[]string{begin, ask, held}, "/q(c)"},
		"a turn that was cancelled":         {[]string{begin, ask, broken}, ""},
		"a turn that has failed":            {[]string{begin, ask, `|turn.end {"stop_reason":"failed"}`}, ""},
		"a cancel":                          {[]string{begin, ask, cancel}, "/q(c)"},
		"a cancel that was obeyed":          {[]string{begin, ask, cancel, held}, ""},
		"an interrupt that was obeyed":      {[]string{begin, ask, kid, interrupt, ended}, "kid/q"},
		"a cancel behind the turn":          {[]string{begin, ask, ended, cancel}, ""},
		"an interrupt behind the turn":      {[]string{begin, ask, ended, interrupt}, ""},
		"a cancel of the run with children": {[]string{kid, `kid|turn.end {"stop_reason":"end_turn"}`, cancel}, ""},
		"a child's end":                     {[]string{ask, kid, `kid|run.lifecycle {"state":"done"}`}, "/q(c)"},
		"the run's end":                     {[]string{ask, kid, aborted}, ""},
		"a run begun anew":                  {[]string{ask, aborted, anew}, ""},
		"an ask behind a run begun anew":    {[]string{ask, aborted, anew, ask}, "/q(c)"},
		"a pause":                           {[]string{ask, `|run.lifecycle {"state":"paused"}`}, "/q(c)"},
	} {
		if got := waitsOf(t, asking(c.lines...)); got != c.want {
			t.Errorf("%s: %q waits, want %q", name, got, c.want)
		}
	}
}

// TestWaitsEverywhere: in logs in which anything is doubled, missing or late, all readers have the same questions, and
// a fold goes on from its snapshot with the same.
func TestWaitsEverywhere(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 34))
		var lines []string
		for range 24 {
			id, lane := rng.IntN(2), []string{"", "", "kid"}[rng.IntN(3)]
			lines = append(lines, lane+"|"+[]string{
				fmt.Sprintf(`input.requested {"request_id":"q%d"}`, id),
				fmt.Sprintf(`input.requested {"request_id":"p%d","call_id":"c%d"}`, id, id),
				fmt.Sprintf(`tool.start {"call_id":"c%d","tool":"x","custom":true}`, id),
				fmt.Sprintf(`tool.end {"call_id":"c%d","ok":true}`, id),
				fmt.Sprintf(`input.answered {"request_id":"q%d"}`, id), fmt.Sprintf(`command.answer {"request_id":"p%d"}`, id),
				`turn.start {"turn_id":"t"}`, `turn.end {"turn_id":"t","stop_reason":"end_turn"}`,
				`turn.end {"turn_id":"t","stop_reason":"cancelled"}`,
				`command.cancel {}`, `command.cancel {"interrupt":true}`, `run.lifecycle {"state":"running"}`,
				`run.lifecycle {"state":"done"}`,
			}[rng.IntN(13)])
		}
		s := asking(lines...)
		waitsOf(t, s)
		events := schematest.NumberEvents(testRun, s)
		var whole, first schema.Fold
		for i := range events {
			whole.Add(&events[i])
			if i < len(events)/2 {
				first.Add(&events[i])
			}
		}
		rest, err := schema.ParseSnapshot(first.AppendSnapshot(nil))
		if err != nil {
			t.Fatal(err)
		}
		for i := len(events) / 2; i < len(events); i++ {
			rest.Add(&events[i])
		}
		if got, want := string(rest.AppendSnapshot(nil)), string(whole.AppendSnapshot(nil)); got != want {
			t.Errorf("seed %d: a fold that goes on has\n%s want\n%s", seed, got, want)
		}
		if !reflect.DeepEqual(rest.Waiting(), whole.Waiting()) {
			t.Errorf("seed %d: %v waits, want %v", seed, rest.Waiting(), whole.Waiting())
		}
	}
}

// TestRepeatsAreNone: the first start and the first end of a call, of a message and of a turn count, however often and
// how late they come again, in the fold and in the reading that all protocols have.
func TestRepeatsAreNone(t *testing.T) {
	const (
		opened = `|message.start {"message_id":"m","role":"assistant"}`
		closed = `|message.end {"message_id":"m","content":[{"type":"tool_use","id":"c","name":"read","input":{}}],"stop_reason":"tool_use"}`
		start  = `|tool.start {"call_id":"c","tool":"read","input":{"n":1}}`
		end    = `|tool.end {"call_id":"c","ok":true,"output":"first"}`
		again  = `|tool.end {"call_id":"c","ok":false,"error":"second"}`
		next   = `|message.start {"message_id":"n","role":"assistant"}`
		begin  = `|turn.start {"turn_id":"t"}`
		over   = `|turn.end {"turn_id":"t","stop_reason":"end_turn"}`
	)
	for name, c := range map[string]struct {
		lines                  []string
		calls, messages, turns int
	}{
		"once":                      {[]string{begin, opened, start, closed, end, over}, 1, 1, 1},
		"the end twice":             {[]string{begin, opened, start, closed, end, again, over}, 1, 1, 1},
		"the end late":              {[]string{begin, opened, start, closed, end, next, over, again}, 1, 2, 1},
		"the start twice":           {[]string{begin, opened, start, start, closed, end, over}, 1, 1, 1},
		"the start behind the end":  {[]string{begin, opened, start, closed, end, start, over}, 1, 1, 1},
		"both twice":                {[]string{begin, start, end, start, again, over}, 1, 0, 1},
		"the start late":            {[]string{begin, end, start, over}, 1, 0, 1},
		"no start":                  {[]string{begin, opened, closed, end, again, over}, 1, 1, 1},
		"another call of that id":   {[]string{begin, opened, start, closed, end, next, start, again, over}, 2, 2, 1},
		"the message's start twice": {[]string{begin, opened, opened, start, closed, end, over}, 1, 1, 1},
		"the message's end twice":   {[]string{begin, opened, start, closed, closed, end, closed, over}, 1, 1, 1},
		"the turn's end twice":      {[]string{begin, opened, start, closed, end, over, over}, 1, 1, 1},
		"the turn's end late":       {[]string{begin, over, `|turn.start {"turn_id":"u"}`, over, opened, closed}, 0, 1, 2},
	} {
		var f schema.Fold
		reading := assemble.New(assemble.Limits{})
		count := map[assemble.Kind]int{}
		for _, e := range schematest.NumberEvents(testRun, asking(c.lines...)) {
			f.Add(&e)
			for _, step := range reading.NextEvent(&e) {
				count[step.Kind]++
			}
		}
		if len(f.Calls) != c.calls || count[assemble.CallStart] != c.calls || len(f.Messages) != c.messages ||
			count[assemble.MessageOpen] != c.messages || count[assemble.TurnBegin] != c.turns {
			t.Errorf("%s: the fold has %d calls and %d messages, the reading %d, %d and %d turns; want %d, %d, %d",
				name, len(f.Calls), len(f.Messages),
				count[assemble.CallStart], count[assemble.MessageOpen], count[assemble.TurnBegin], c.calls, c.messages, c.turns)
		}
		for _, call := range f.Calls[:min(1, len(f.Calls))] {
			if !call.OK || call.Tool != "read" {
				t.Errorf("%s: the first call is %+v", name, call)
			}
		}
	}
}
