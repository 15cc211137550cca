package schema_test

import (
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
	"agentstream/schema/schematest"
)

var damaged = flag.Uint64("damaged", 600, "how many damaged logs are read")

// TestDamagedLogs: in logs in which any control event is doubled, missing or late, the fold and the reading of all
// protocols have the same messages, calls, results, questions, children and usage. What is only repeated changes
// nothing in a snapshot.
func TestDamagedLogs(t *testing.T) {
	failed := 0
	for _, seed := range schematest.SeedsOfDamage(*damaged) {
		d := schematest.MakeDamaged(seed, 1+int(seed%4))
		events := schematest.NumberEvents(testRun, d.Scenario)
		f, whole := sumOf(events), sumOf(schematest.NumberEvents(testRun, d.Whole))
		problem := ""
		if got, want := schematest.Summary(f), schematest.Summary(whole); d.Pure && got != want {
			problem = "the snapshot has changed:\n" + schematest.Differences(got, want)
		}
		facts := schematest.FactsOf(f)
		reading := readingOf(events)
		late := len(facts.Results) - len(reading.Results)
		if late > 0 && facts.Has(reading) { // of a call that the end of its run has ended in all protocols
			reading.Results = facts.Results
		}
		if got, want := reading.String(), facts.String(); got != want {
			problem += "the reading and the fold differ:\n" + schematest.Differences(got, want)
		}
		if !d.Again {
			problem += invented(facts, schematest.FactsOf(whole))
		}
		problem += fromSnapshots(t, events, int(seed))
		if problem == "" {
			continue
		}
		t.Errorf("seed %d: %s\n%s", seed, d.What, problem)
		if failed++; failed > 3 {
			t.FailNow()
		}
	}
}

func sumOf(events []schema.Event) *schema.Fold {
	f := new(schema.Fold)
	for i := range events {
		f.Add(&events[i])
	}
	return f
}

// invented returns what a damaged log has that the whole one has not.
func invented(got, whole schematest.Facts) (problem string) {
	for name, n := range got.Usage {
		if n > whole.Usage[name] {
			problem += fmt.Sprintf("%s is %d, of %d\n", name, n, whole.Usage[name])
		}
	}
	if !whole.Has(got) {
		problem += "it has what nobody said:\n" + schematest.Differences(got.String(), whole.String())
	}
	return problem
}

// fromSnapshots compares the fold with one that goes on from a snapshot on the way.
func fromSnapshots(t *testing.T, events []schema.Event, seed int) string {
	cut := 1 + seed%len(events)
	rest, err := schema.ParseSnapshot(sumOf(events[:cut]).AppendSnapshot(nil))
	if err != nil {
		t.Fatal(err)
	}
	for i := cut; i < len(events); i++ {
		rest.Add(&events[i])
	}
	whole := sumOf(events)
	if got, want := string(rest.AppendSnapshot(nil)), string(whole.AppendSnapshot(nil)); got != want {
		return fmt.Sprintf("a fold that goes on behind event %d has\n%s\nwant\n%s\n", cut, got, want)
	}
	if !reflect.DeepEqual(rest.Waiting(), whole.Waiting()) {
		return fmt.Sprintf("behind event %d %v waits, want %v\n", cut, rest.Waiting(), whole.Waiting())
	}
	return ""
}

// readingOf returns the facts that the transitions say.
func readingOf(events []schema.Event) (facts schematest.Facts) {
	a, children := assemble.New(assemble.Limits{}), map[string]bool{}
	type place struct {
		child string
		start schema.Seq
	}
	messages := map[place]string{} // what comes later may name them
	defer func() {
		for _, fact := range messages {
			facts.Messages = append(facts.Messages, fact)
		}
	}()
	for i := range events {
		for _, s := range a.NextEvent(&events[i]) {
			if m := s.Message; m != nil && m.Role != "user" {
				messages[place{s.Lane.Child, m.Start}] = schematest.Fact(s.Lane.Child, m.ID)
			}
			switch child := s.Lane.Child; s.Kind {
			case assemble.CallStart:
				facts.Calls = append(facts.Calls, schematest.Fact(child, s.Item.ID))
			case assemble.CallEnd:
				if !s.Repaired {
					ok := string(schema.Field(events[i].Payload, "ok")) == "true"
					facts.Results = append(facts.Results, schematest.Fact(child, s.Item.ID, " ", ok))
				}
			case assemble.InputRequest:
				facts.Questions = append(facts.Questions, schematest.Fact(child, s.Item.ID))
			case assemble.ChildBegin:
				if !children[child] {
					facts.Children = append(facts.Children, child)
				}
				children[child] = true
			case assemble.UsageAdd:
				if s.Message != nil {
					facts.Usage = facts.Usage.Plus(usageIn(s.Value))
				}
			}
		}
	}
	facts.Plan = schematest.FactsOf(sumOf(events)).Plan // it has none
	return facts
}

func usageIn(object []byte) schema.Usage {
	u := schema.Usage{}
	for _, f := range jsonscan.Fields(nil).Read(object) {
		n, _ := jsonscan.WholeNumber(f.Value)
		u[string(f.Name)] = n
	}
	return u
}

// TestIdsBeginAgain: what begins with the id of something that has ended is another one in another turn, and in the
// same one when something comes for it that was not said before, in the fold and in the reading alike; else it is a
// repeat.
func TestIdsBeginAgain(t *testing.T) {
	const (
		turn   = `|turn.start {"turn_id":"t"}`
		start  = `|message.start {"message_id":"m","role":"assistant","model":"x"}`
		text   = `|text.delta {"text":"a"}`
		other  = `|text.delta {"text":"b"}`
		end    = `|message.end {"message_id":"m","usage":{"n":1}}`
		said   = `|message.end {"message_id":"m","content":[{"type":"text","text":"a"}],"usage":{"n":1}}`
		more   = `|message.end {"message_id":"m","content":[{"type":"text","text":"b"}],"usage":{"n":1}}`
		block  = `|block.start {"message_id":"m","index":0,"kind":"text"}`
		call   = `|tool.start {"call_id":"c","tool":"t","input":{}}`
		result = `|tool.end {"call_id":"c","ok":true}`
		over   = `|turn.end {"turn_id":"t"}`
		inner  = `|turn.start {"turn_id":"u"}`
		next   = `|block.start {"message_id":"n","index":0,"kind":"text"}`
		run    = `|run.lifecycle {"state":"running"}`
		ask    = `|block.start {"index":0,"kind":"tool_use","call_id":"c","tool":"t"}`
		works  = `|tool.run {"call_id":"c"}`
		paused = `|run.lifecycle {"state":"paused"}`
		done   = `|run.lifecycle {"state":"done"}`
	)
	for name, c := range map[string]struct {
		lines []string
		want  string // messages with their texts, calls, turns
	}{
		"turns of one id": {[]string{turn, start, text, end, over, turn, start, text, end, over, turn,
			start, end, over}, "m:a m:a m: 0 calls, 3 turns"},
		"a message of that id in its turn": {[]string{turn, start, text, end, start, other, end, over},
			"m:a m:b 0 calls, 1 turns"},
		"without turns": {[]string{start, text, end, start, other, end, start, text, said},
			"m:a m:b m:a 0 calls, 0 turns"},
		"nothing comes": {[]string{turn, start, text, end, start, over, start}, "m:a 0 calls, 1 turns"},
		"start and end": {[]string{turn, start, text, said, start, said, start, end, over},
			"m:a 0 calls, 1 turns"},
		"start and another end": {[]string{turn, start, said, start, more, over}, "m:a m:b 0 calls, 1 turns"},
		"a block": {[]string{turn, start, text, end, start, block, other, end, over},
			"m:a m:b 0 calls, 1 turns"},
		"a block without a start": {[]string{turn, start, text, end, block, over}, "m:a 0 calls, 1 turns"},
		"another message, then a nameless": {[]string{turn, start, text, end, start, inner, other},
			"m:a :b 0 calls, 2 turns, one open"},
		"a start that is held, and states": {[]string{start, text, end, start, paused, done, other},
			"m:a :b 0 calls, 0 turns"},
		"a block of one that is not known": {[]string{start, text, next, other, end,
			`|message.end {"message_id":"n"}`}, "m:a n:b 0 calls, 0 turns"},
		"a late block, and one of new turn": {[]string{start, text, end, inner, next, block, other, inner, block, text},
			"m:a n:b m:a 0 calls, 1 turns, one open"},
		"calls of one id": {[]string{turn, call, result, over, turn, call, result, over},
			"2 calls, 2 turns"},
		"a call once more":                 {[]string{turn, call, result, call, over}, "1 calls, 1 turns"},
		"a call that was cut, and another": {[]string{run, call, done, run, call, result, done}, "2 calls, 0 turns"},
		"a call once more over a pause":    {[]string{run, call, paused, run, call, result, done}, "1 calls, 0 turns"},
		"a cut call, and its start again":  {[]string{run, call, done, call, done}, "1 calls, 0 turns"},
		"a late start with an input":       {[]string{ask, works, call, result}, ": 1 calls, 0 turns"},
		"the start of a turn in another": {[]string{turn, over, inner, turn, `|turn.end {"turn_id":"u"}`},
			"0 calls, 3 turns"},
		"the end of a turn late": {[]string{turn, over, inner, over, start, text, end,
			`|turn.end {"turn_id":"u"}`}, "m:a 0 calls, 2 turns"},
		"the start of a turn that is under": {[]string{turn, start, text, end, turn, over}, "m:a 0 calls, 1 turns"},
	} {
		events := schematest.NumberEvents(testRun, asking(c.lines...))
		if got := textsOf(sumOf(events)) + turnsOf(events); got != c.want {
			t.Errorf("%s: the fold has %s, want %s", name, got, c.want)
		}
		f := sumOf(events)
		if got, want := readingOf(events).String(), schematest.FactsOf(f).String(); got != want {
			t.Errorf("%s: the reading and the fold differ:\n%s", name, schematest.Differences(got, want))
		}
		for cut := range events {
			if problem := fromSnapshots(t, events, cut); problem != "" {
				t.Errorf("%s: %s", name, problem)
			}
		}
	}
}

// beginsAgain is a run of one lane and of a child, in which ids begin again in all ways, and two messages that nothing
// has come for.
var beginsAgain = func() schematest.Scenario {
	lines := []string{`|run.lifecycle {"state":"running"}`}
	for _, child := range []string{"", "run_kid"} {
		for _, line := range strings.Split(`turn.start {"turn_id":"t"}
			message.start {"message_id":"m","role":"assistant","model":"x"}
			text.delta {"text":"a\u00e9"}
			message.end {"message_id":"m","content":[{"type":"text","text":"aé"}],"usage":{"n":1}}
			message.start {"message_id":"m","role":"assistant","model":"x"}
			message.end {"message_id":"m","content":[{"type":"text","text":"aé"}],"usage":{"n":1}}
			message.start {"message_id":"m","role":"assistant","model":"y","usage":{"n":2}}
			message.end {"content":[{"type":"tool_use","id":"c","name":"t","input":{}}]}
			tool.start {"call_id":"c","tool":"t","input":{}}
			tool.end {"call_id":"c","ok":true}
			tool.start {"call_id":"c","tool":"t","input":{}}
			message.start {"message_id":"m","role":"assistant"}
			block.start {"message_id":"m","index":0,"kind":"text"}
			text.delta {"text":"b","index":0}
			message.end {"message_id":"m"}
			turn.end {"turn_id":"t"}
			turn.start {"turn_id":"t"}
			tool.start {"call_id":"c","tool":"t","input":{}}
			message.start {"message_id":"m","role":"assistant"}
			message.end {"message_id":"m"}
			message.start {"message_id":"m","role":"assistant"}
			text.delta {"text":"c"}
			message.end {"message_id":"m"}
			message.start {"message_id":"m","role":"assistant","model":"z","usage":{"n":3}}`, "\n") {
			lines = append(lines, child+"|"+strings.TrimSpace(line))
		}
	}
	s := asking(lines...)
	s.Name = "begins-again"
	return s
}()

// textsOf writes the messages of a fold with their texts, and how many calls it has.
func textsOf(f *schema.Fold) string {
	text := ""
	for _, m := range f.Messages {
		text += m.ID + ":"
		for _, b := range m.Blocks {
			text += b.Text.String()
		}
		text += " "
	}
	return fmt.Sprintf("%s%d calls,", text, len(f.Calls))
}

// turnsOf writes how many turns begin, and whether one is open in the end.
func turnsOf(events []schema.Event) string {
	a, n := assemble.New(assemble.Limits{}), 0
	for i := range events {
		for _, s := range a.NextEvent(&events[i]) {
			if s.Kind == assemble.TurnBegin {
				n++
			}
		}
	}
	if a.Lane("").InTurn {
		return fmt.Sprintf(" %d turns, one open", n)
	}
	return fmt.Sprintf(" %d turns", n)
}
