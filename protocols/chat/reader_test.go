package chat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// names of kinds, for what tests compare.
var names = map[Kind]string{Begin: "begin", Message: "message", TextStart: "text(", TextDelta: "text", TextEnd: "text)",
	CallStart: "call(", CallDelta: "piece",
	CallInput: "input", CallBroken: "broken", CallResult: "result", CallFailed: "failed", CallDenied: "denied",
	Ask: "ask", Usage: "usage", File: "file",
	Data: "data", ChildState: "child", Done: "done", Aborted: "aborted", Failed: "error", Empty: "empty"}

func (e *Event) String() string {
	s := fmt.Sprintf("%d %s", e.Response, names[e.Kind])
	for _, more := range []string{e.Lane, e.ID, e.Name, e.Call, e.Why, string(e.Text), string(e.Value)} {
		if more != "" && e.Kind != Data && e.Kind != Usage && e.Kind != Ask {
			s += " " + more
		}
	}
	if e.Kind == Data || e.Kind == Ask {
		s += " " + strings.TrimSpace(e.Name+" "+e.ID)
	}
	return s
}

// ev is an event of the root; "child: " before its type is of that child.
func ev(typ, payload string) schema.Event {
	child, own, of := strings.Cut(typ, ": ")
	if !of {
		child, own = "", typ
	}
	return schema.Event{Type: own, ChildID: child, Payload: []byte(payload)}
}

func recordsOf(t testing.TB, events []schema.Event) (list []schema.Record) {
	t.Helper()
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run_a"}, schematest.Scenario{Events: events}, 7)
	for i := range packs {
		for r, err := range packs[i].Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, r)
		}
	}
	return list
}

func read(t testing.TB, r *Reader, records []schema.Record) (list []string) {
	t.Helper()
	for _, rec := range records {
		events, err := r.Next(rec)
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			list = append(list, events[i].String())
		}
	}
	return list
}

const (
	start, end = schema.TypeTurnStart, schema.TypeTurnEnd
	says       = schema.TypeCommandMessage
	text       = schema.TypeTextDelta
	turn       = `{"turn_id":"t"}`
	over       = `{"turn_id":"t","stop_reason":"end_turn"}`
)

func saidBy(id string) schema.Event { return ev(says, `{"content":"x","message_id":"`+id+`"}`) }

// TestResponses has where responses begin and end.
func TestResponses(t *testing.T) {
	for name, tt := range map[string]struct {
		events []schema.Event
		want   string
	}{
		"a turn": {[]schema.Event{saidBy("m"), ev(start, turn), ev(text, `{"text":"a"}`), ev(end, over)},
			"1 begin|1 message|1 text( 3-0|1 text 3-0 a|1 text) 3-0|1 done end_turn"},
		"nobody has asked": {[]schema.Event{ev(schema.TypeRunLifecycle, `{"state":"running"}`),
			ev(text, `{"text":"a"}`), ev(schema.TypeRunLifecycle, `{"state":"done","reason":null}`)},
			"2 begin|2 message|2 text( 2-0|2 text 2-0 a|2 text) 2-0|2 done"},
		"it was nothing yet": {[]schema.Event{ev(start, turn), saidBy("m"), ev(text, `{"text":"a"}`), ev(end, over)},
			"1 empty|2 begin|2 message|2 text( 3-0|2 text 3-0 a|2 text) 3-0|2 done end_turn"},
		"one waits for the other": {[]schema.Event{saidBy("m"), ev(start, turn), ev(text, `{"text":"a"}`), saidBy("n"),
			ev(end, over), ev(start, `{"turn_id":"u"}`), ev(text, `{"text":"b"}`), ev(end, `{"turn_id":"u"}`)},
			"1 begin|1 message|1 text( 3-0|1 text 3-0 a|1 text) 3-0|1 done end_turn|4 begin|4 message|4 text( 7-0|4 text 7-0 b|4 text) 7-0|4 done"},
		"taken into the one under way": {[]schema.Event{saidBy("m"), ev(start, turn), ev(text, `{"text":"a"}`),
			saidBy("n"), ev(schema.TypeCommandsTaken, `{"through":4}`), ev(end, over)},
			"1 begin|1 message|1 text( 3-0|1 text 3-0 a|4 empty|1 text) 3-0|1 done end_turn"},
		"the run ends": {[]schema.Event{saidBy("m"), ev(start, turn), ev(text, `{"text":"a"}`), saidBy("n"),
			ev(schema.TypeRunLifecycle, `{"state":"error","reason":"broken"}`)},
			"1 begin|1 message|1 text( 3-0|1 text 3-0 a|1 text) 3-0|1 error broken|4 begin|4 error broken"},
		"no turns": {[]schema.Event{saidBy("m"), ev(schema.TypeMessageStart, `{"message_id":"x","role":"assistant"}`),
			ev(text, `{"text":"a"}`), ev(schema.TypeMessageEnd, `{"message_id":"x"}`), saidBy("n"), ev(text, `{"text":"b"}`)},
			"1 begin|1 message|1 text( 2-0|1 text 2-0 a|1 text) 2-0|1 usage|1 done|5 begin|5 message|5 text( 6-0|5 text 6-0 b"},
		"cancelled": {[]schema.Event{saidBy("m"), ev(start, turn),
			ev(schema.TypeToolStart, `{"call_id":"c","tool":"rm"}`), ev(end, `{"turn_id":"t","stop_reason":"cancelled"}`)},
			"1 begin|1 call( c rm|1 input c rm {}|1 failed c rm the call did not end|1 aborted cancelled"},
		"cancelled before it began": {[]schema.Event{saidBy("m"), ev(start, turn), ev(text, `{"text":"a"}`),
			saidBy("n"), ev("command.cancel", `{}`),
			ev(end, `{"turn_id":"t","stop_reason":"cancelled"}`), ev(schema.TypeCommandsTaken, `{"through":5}`)},
			"1 begin|1 message|1 text( 3-0|1 text 3-0 a|1 text) 3-0|1 aborted cancelled|4 begin|4 aborted cancelled"},
		"an id again": {[]schema.Event{saidBy("m"), ev(start, turn),
			ev(schema.TypeToolStart, `{"call_id":"c","tool":"rm"}`),
			ev(schema.TypeToolEnd, `{"call_id":"c","ok":true,"output":1}`),
			ev(schema.TypeMessageStart, `{"message_id":"x","role":"assistant"}`),
			ev(schema.TypeToolStart, `{"call_id":"c","tool":"rm"}`),
			ev(schema.TypeToolEnd, `{"call_id":"c","ok":false,"error_detail":"no"}`)},
			"1 begin|1 call( c rm|1 input c rm {}|1 result c rm 1|1 message|1 call( c#2 rm|1 input c#2 rm {}|1 failed c#2 rm no"},
		"the end of a call in the next response": {[]schema.Event{saidBy("m"), ev(start, turn),
			ev(schema.TypeMessageStart, `{"message_id":"x","role":"assistant"}`),
			ev(schema.TypeBlockStart, `{"index":0,"kind":"tool_use","call_id":"c","tool":"rm"}`),
			ev(schema.TypeMessageEnd, `{"message_id":"x"}`), ev(end, over),
			saidBy("n"), ev(schema.TypeToolEnd, `{"call_id":"c","ok":true,"output":1}`)},
			"1 begin|1 message|1 call( c rm|1 usage|1 input c rm {}|1 failed c rm the call did not end|1 done end_turn|7 begin|7 data tool-end"},
		"denied": {[]schema.Event{saidBy("m"), ev(start, turn), ev(schema.TypeToolStart, `{"call_id":"c","tool":"rm"}`),
			ev(schema.TypeInputRequested, `{"request_id":"q","call_id":"c"}`),
			ev("command.answer", `{"request_id":"q","answer":{"result":"deny"}}`),
			ev(schema.TypeToolEnd, `{"call_id":"c","ok":false}`)},
			"1 begin|1 call( c rm|1 input c rm {}|1 ask q|1 denied c rm"},
		"a question about nothing": {[]schema.Event{saidBy("m"), ev(schema.TypeInputRequested, `{"request_id":"q"}`),
			ev(schema.TypeInputAnswered, `{"request_id":"q","answer":1}`)},
			"1 begin|1 data input q|1 data input q"},
		"a system message": {[]schema.Event{ev(says, `{"content":"x","role":"system"}`), ev(text, `{"text":"a"}`)},
			"2 begin|2 message|2 text( 2-0|2 text 2-0 a"},
		"a child": {[]schema.Event{saidBy("m"), ev(start, turn),
			ev(schema.TypeChildSpawn, `{"child_id":"kid","prompt":"go"}`), ev("kid: "+text, `{"text":"k"}`), ev(end, over)},
			`1 begin|1 child kid "go"|1 message kid|1 text( kid 4-0|1 text kid 4-0 k|1 text) kid 4-0|1 done end_turn`},
		"a file": {[]schema.Event{saidBy("m"), ev(start, turn),
			ev(schema.TypeDataDelta, `{"media_type":"image/png","data":"AAAA"}`),
			ev(schema.TypeDataDelta, `{"media_type":"image/png","data":"BBBB"}`), ev(end, over)},
			"1 begin|1 message|1 file image/png AAAABBBB|1 done end_turn"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(read(t, New(), recordsOf(t, tt.events)), "|"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestAnyRun reads scenarios and runs that are drawn: what opens closes, once and before the end, and a copy made
// anywhere goes on as the original does.
func TestAnyRun(t *testing.T) {
	all := schematest.All()
	for seed := range uint64(60) {
		all = append(all, schematest.Generate(300, seed))
	}
	for _, s := range all {
		records := recordsOf(t, s.Events)
		whole := New()
		list := read(t, whole, records)
		for _, at := range []int{1, len(records) / 3, len(records) - 1} {
			r := New()
			before := read(t, r, records[:at])
			c := r.Clone()
			read(t, r, records[at:])
			if got := append(before, read(t, c, records[at:])...); !slices.Equal(got, list) {
				t.Fatalf("%s: a copy at %d goes on otherwise", s.Name, at)
			}
		}
		hold(t, s.Name, records)
	}
}

// hold checks what every response is.
func hold(t *testing.T, name string, records []schema.Record) {
	t.Helper()
	r := New()
	begun, ended, open := map[schema.Seq]bool{}, map[schema.Seq]bool{}, map[string]Kind{}
	for _, rec := range records {
		events, err := r.Next(rec)
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			e := &events[i]
			id := fmt.Sprint(e.Response, " ", e.Lane, " ", e.ID)
			bad := ended[e.Response] || !begun[e.Response] && e.Kind != Begin && e.Kind != Empty
			was, known := open[id]
			switch e.Kind {
			case Begin:
				bad = bad || begun[e.Response]
				begun[e.Response] = true
			case TextStart, CallStart:
				bad = bad || known
				open[id] = e.Kind
			case TextDelta:
				bad = bad || was != TextStart
			case TextEnd:
				bad = bad || was != TextStart
				open[id] = TextEnd
			case CallDelta:
				bad = bad || was != CallStart
			case CallInput, CallBroken:
				bad = bad || was != CallStart
				open[id] = e.Kind
			case CallResult, CallFailed, CallDenied:
				bad = bad || was != CallInput
				open[id] = CallResult
			case Done, Aborted, Failed, Empty:
				ended[e.Response] = true
				for id, k := range open {
					bad = bad || k == TextStart && strings.HasPrefix(id, e.Response.String()+" ")
				}
			}
			if bad {
				t.Fatalf("%s: record %d: %s", name, rec.Seq, e)
			}
		}
	}
}
