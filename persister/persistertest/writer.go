package persistertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentstream/schema"
)

// Writer returns the packs of one run, with the seqs and heads of a log's writer. It is for tests: it panics when an
// event is not valid.
type Writer struct {
	Key    schema.RunKey
	Head   schema.Head
	Lanes  map[string]schema.Lane
	Stored uint64 // position of the newest pack in an imagined log
	ids    *schema.IDs
	now    time.Time
}

// NewWriter returns a Writer of a new run on a day (YYYYMMDD).
func NewWriter(key schema.RunKey, day string) *Writer {
	now, err := time.Parse("20060102", day)
	if err != nil {
		panic(err)
	}
	return &Writer{
		Key: key, Head: schema.Head{Day: day}, Lanes: make(map[string]schema.Lane),
		ids: schema.NewIDs(), now: now.Add(23*time.Hour + 59*time.Minute),
	}
}

// At sets the writer's clock. The time of its next event is one second later.
func (w *Writer) At(now time.Time) { w.now = now }

// Pack returns the next pack of a lane. The events need Type and Payload only.
func (w *Writer) Pack(child string, events ...schema.Event) schema.Pack {
	p := schema.Pack{Key: w.Key, Child: child, First: w.Head.Last + 1, Count: len(events), Writer: "w1"}
	for _, e := range events {
		w.now = w.now.Add(time.Second)
		e.ID, e.TS = w.ids.Event(w.now, w.Head.LastID), w.now.UTC().Format(schema.TimeLayout)
		e.RunID, e.ChildID, e.Seq = w.Key.Run, child, w.Head.Last+1
		if err := w.Head.Advance(e.Type, child, e.ID, e.Payload); err != nil {
			panic(err)
		}
		p.Body = append(e.AppendLine(p.Body), '\n')
	}
	w.Stored++
	w.Head.Stored = w.Stored
	w.Head.Lane = w.Lanes[child]
	p.Head = w.Head
	return p
}

// Texts returns a pack of n text deltas.
func (w *Writer) Texts(child string, n int) schema.Pack {
	events := make([]schema.Event, n)
	for i := range events {
		events[i] = Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":"%s %d"}`, child, int(w.Head.Last)+i+1))
	}
	return w.Pack(child, events...)
}

// Event returns an event of a type and a payload.
func Event(typ, payload string) schema.Event {
	return schema.Event{Type: typ, Payload: json.RawMessage(payload)}
}

// Lifecycle returns a run.lifecycle event.
func Lifecycle(state schema.RunState) schema.Event {
	return Event(schema.TypeRunLifecycle, fmt.Sprintf(`{"state":%q,"reason":null}`, state))
}

// Hostile returns payloads that JSON allows and that databases may change or refuse.
func Hostile() []string {
	planes := func() string {
		var b strings.Builder
		for plane := rune(0); plane <= 16; plane++ {
			for _, low := range []rune{0x41, 0xE9, 0x2028, 0xD7FF, 0xE000, 0xFDD0, 0xFFFD, 0xFFFE, 0xFFFF} {
				b.WriteRune(plane<<16 | low)
			}
		}
		return b.String()
	}()
	return []string{
		`{"text":"plain"}`,
		`{"text":"\u0000"}`, `{"text":"a\u0000b","\u0000":1}`, `{"text":"\\u0000 is no escape"}`,
		`{"text":"\ud800"}`, `{"text":"\udc00"}`, `{"text":"\ud83d\ude00"}`, `{"text":"\ude00\ud83d"}`,
		`{"text":"\ud800\ud800\udc00"}`, `{"text":"\uD83D\u0041"}`, `{"text":"\ud83d\\ude00"}`,
		`{"text":"x","text":"y","a":1,"a":2}`, `{"z":1,"text":"","a":2,"":3}`,
		`{"text":"","n":1e400}`, `{"text":"","n":1e200000}`, `{"text":"","n":-1E-200000}`,
		`{"text":"","n":1e99999999999999999999}`,
		`{"text":"","n":1.0}`, `{"text":"","n":100000000000000000000000000000000000001}`, `{"text":"","n":0.1000}`,
		`{"text":"","n":-0}`,
		`{"text":"","n":` + strings.Repeat("9", 140_000) + `}`, `{"text":"","n":0.` + strings.Repeat("1", 17_000) + `}`,
		`{ "text" : "spaces" ,	"tab":[ 1 , 2 ] }`,
		`{"text":"\u000a\n\t\"\\\/ \u2028 <&> \b\f"}`,
		`{"text":"` + planes + `"}`,
		`{"text":"","deep":` + strings.Repeat("[", 120) + strings.Repeat("]", 120) + `}`,
		`{"text":"` + strings.Repeat("é\\u0000", 400<<10/8) + `"}`,
		`{"text":"'; drop table agent_runs; --","$1":"%s\\N"}`,
		`{"text":""}`,
	}
}
