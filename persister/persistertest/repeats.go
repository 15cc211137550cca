package persistertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// repeatQueries are what the views and the list of runs show of a run, by name: its messages, calls and results, each a
// lane and an id, the messages that have ended, and its usage.
var repeatQueries = map[string]string{
	"message": `select coalesce(child_id, '-') || '/' || coalesce(message_id, '') from agent_v_messages where run_id = $1 and coalesce(role, '') <> 'user'`,
	"call":    `select coalesce(child_id, '-') || '/' || coalesce(call_id, '') from agent_v_tool_calls where run_id = $1`,
	"result": `select coalesce(child_id, '-') || '/' || coalesce(call_id, '') || ' ' || case outcome when 'ok' then 'true' else 'false' end
		from agent_v_tool_calls where run_id = $1 and end_seq is not null`,
	"time":  `select coalesce(child_id, '-') || '/' || call_id || ' ' || case outcome when 'ok' then 'true' else 'false' end from agent_v_tool_times where run_id = $1`,
	"ended": `select cast(messages as text) from agent_v_runs where run_id = $1`,
	"usage": `select cast(usage as text) from agent_runs where id = $1`,
	"daily": `select cast(coalesce(sum(input_tokens), 0) as text) from agent_v_usage_daily where koder_user_id = $1`,
}

// CheckRepeats stores damaged logs, each as the runs of a tenant of its own, in packs of one event in one go, and
// checks that the views and the list show each of them as schema.Fold does: nothing twice and nothing that nobody said.
// ask returns the texts of a query's first column.
func CheckRepeats(t *testing.T, s SuiteStore, logs uint64, ask func(text, arg string) []string) {
	t.Helper()
	for seed := range logs {
		d := schematest.MakeDamaged(seed, 1+int(seed%4))
		name := fmt.Sprint("run_", seed)
		w := NewWriter(schema.RunKey{Tenant: name, Run: name}, "20260228")
		f := new(schema.Fold)
		begun := map[schema.Seq]bool{}
		var packs []schema.Pack
		for i := range d.Events {
			e := d.Events[i]
			packs = append(packs, w.Pack(e.ChildID,
				schema.Event{Type: e.Type, Actor: e.Actor, Path: e.Path, Payload: e.Payload}))
			e.Seq = w.Head.Last
			begun[e.Seq] = e.Type == schema.TypeMessageStart || e.Type == schema.TypeToolStart
			f.Add(&e)
		}
		for part := range slices.Chunk(packs, 1+int(seed%7)*20) {
			Put(t, s, part...)
		}
		if problem := compareViews(f, begun, usageOf(f, d.Events),
			func(what string) []string { return ask(repeatQueries[what], name) }); problem != "" {
			t.Errorf("seed %d: %s\n%s", seed, d.What, problem)
		}
	}
}

// usageOf returns the usage of a fold, and of ends that come after something else has ended their message: it was used.
func usageOf(f *schema.Fold, events []schema.Event) schema.Usage {
	usage := schematest.FactsOf(f).Usage
	counted, known := map[schema.Seq]bool{}, map[string]bool{}
	for _, m := range f.Messages {
		counted[m.End] = true
	}
	for i := range events {
		e := &events[i]
		of := e.ChildID + "/" + string(schema.Field(e.Payload, "message_id"))
		if e.Type != schema.TypeMessageEnd {
			continue
		}
		if !known[of] && !counted[schema.Seq(i+1)] {
			usage = usage.Plus(schema.UsageOf(e.Payload))
		}
		known[of] = true
	}
	return usage
}

// compareViews returns what the views show and the fold has not, or the other way round; "" for nothing. begun are the
// starts: of a message or a call without one there is no row.
func compareViews(f *schema.Fold, begun map[schema.Seq]bool, used schema.Usage,
	shown func(what string) []string) (problem string) {
	facts := schematest.FactsOf(f)
	must := map[string][]string{}
	for _, m := range f.Messages {
		if begun[m.Start] {
			must["message"] = append(must["message"], schematest.Fact(m.Child, m.ID))
		}
	}
	for _, c := range f.Calls {
		if begun[c.Start] {
			must["call"] = append(must["call"], schematest.Fact(c.Child, c.ID))
		}
	}
	may := map[string][]string{"message": facts.Messages, "call": facts.Calls, "result": facts.Results,
		"time": facts.Results}
	for what, all := range may {
		got := shown(what)
		if extra := surplus(got, all); len(extra) > 0 {
			problem += fmt.Sprintf("%s: %q is shown, of %q\n", what, extra, all)
		}
		if missing := surplus(must[what], got); len(missing) > 0 {
			problem += fmt.Sprintf("%s: %q is not shown\n", what, missing)
		}
	}
	var usage schema.Usage
	_ = json.Unmarshal([]byte(shown("usage")[0]), &usage)
	if usage.String() != used.String() {
		problem += fmt.Sprintf("the list has the usage %s, want %s\n", usage, used)
	}
	if got, want := shown("daily")[0], fmt.Sprint(used["input_tokens"]); got != want {
		problem += fmt.Sprintf("%s input tokens in a day, want %s\n", got, want)
	}
	return problem
}

// surplus returns what a list has more often than another.
func surplus(list, other []string) (extra []string) {
	count := map[string]int{}
	for _, s := range other {
		count[s]++
	}
	for _, s := range list {
		if count[s]--; count[s] < 0 {
			extra = append(extra, s)
		}
	}
	return extra
}

// Twice is a run in which the same ids begin in two turns, and all of the first turn comes twice.
func Twice() (events []schema.Event) {
	turn := func(n int, twice bool) {
		events = append(events, Event(schema.TypeTurnStart, fmt.Sprintf(`{"turn_id":"t%d"}`, n)))
		for _, e := range []schema.Event{
			Event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant","model":"x"}`),
			Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":"said %d"}`, n)),
			Event(schema.TypeMessageEnd, fmt.Sprintf(`{"message_id":"m","usage":{"input_tokens":%d}}`, n)),
			Event(schema.TypeToolStart, `{"call_id":"c","tool":"t","input":{}}`),
			Event(schema.TypeToolEnd, `{"call_id":"c","ok":true,"duration_ms":5}`),
		} {
			if events = append(events, e); twice && e.Type != schema.TypeTextDelta {
				events = append(events, e)
			}
		}
	}
	turn(1, true)
	turn(10, false)
	return events
}

// CheckTwice checks that the views and the list show each event of Twice once; ask is that of CheckRepeats.
func CheckTwice(t *testing.T, key schema.RunKey, ask func(text, arg string) []string) {
	t.Helper()
	for what, want := range map[string]string{
		"message": "[-/m -/m]", "call": "[-/c -/c]", "result": "[-/c true -/c true]", "time": "[-/c true -/c true]",
		"ended": "[2]",
	} {
		if got := fmt.Sprint(ask(repeatQueries[what], key.Run)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	var usage schema.Usage
	_ = json.Unmarshal([]byte(ask(repeatQueries["usage"], key.Run)[0]), &usage)
	if got := usage.String(); got != `{"input_tokens":11}` {
		t.Errorf("the list has the usage %s", got)
	}
	if got := ask(repeatQueries["daily"], key.Tenant)[0]; got != "11" {
		t.Errorf("%s input tokens in a day", got)
	}
	const texts = `select text from agent_v_messages where run_id = $1 order by seq`
	if got := fmt.Sprint(ask(texts, key.Run)); got != "[said 1 said 10]" {
		t.Errorf("the texts are %s", got)
	}
}
