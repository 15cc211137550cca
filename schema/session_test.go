package schema_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"agentstream/internal/cputime"
	"agentstream/schema"
)

const (
	stamp1 = "2026-01-02T03:04:05.000Z"
	stamp2 = "2026-01-02T03:04:06.5+02:00"
)

// sessionStep is one event of a session.
type sessionStep struct{ typ, ts, payload string }

func mergeAll(old json.RawMessage, steps []sessionStep) json.RawMessage {
	for _, s := range steps {
		old = schema.MergeSession(old, s.typ, s.ts, []byte(s.payload))
	}
	return old
}

func TestMergeSession(t *testing.T) {
	const created, updated, archived, deleted = schema.TypeSessionCreated, schema.TypeSessionUpdated, schema.TypeSessionArchived, schema.TypeSessionDeleted
	for _, tt := range []struct{ name, old, typ, payload, want string }{
		{"empty", ``, created, `{}`, `{}`},
		{"as written", ``, created, ` { "agent" : {"id":"agent_1", "n":1.50} ,"title":"caf\u00e9 \ud800"}`,
			`{"agent":{"id":"agent_1", "n":1.50},"title":"caf\u00e9 \ud800"}`},
		{"replaced in its place", `{"title":"a","x":1}`, updated, `{"title":"b","y":[2]}`, `{"title":"b","x":1,"y":[2]}`},
		{"null removes", `{"title":"a","x":1}`, updated, `{"title":null,"gone":null}`, `{"x":1}`},
		{"null at the beginning", ``, created, `{"title":null,"metadata":{"a":null,"b":"1"}}`, `{"metadata":{"b":"1"}}`},
		{"objects are replaced whole", `{"agent":{"id":"a","v":1}}`, updated, `{"agent":{"id":"b"}}`, `{"agent":{"id":"b"}}`},
		{"metadata by key", `{"metadata":{"a":"1","b":"2","c":"3"}}`, updated,
			`{"metadata":{"b":null,"c":"4","d":"5"}}`, `{"metadata":{"a":"1","c":"4","d":"5"}}`},
		{"metadata of another spelling", `{"metadata":{"a":"1"}}`, updated, `{"met\u0061data":{"\u0061":null}}`,
			`{"metadata":{}}`},
		{"metadata removed", `{"metadata":{"a":"1"},"x":1}`, updated, `{"metadata":null}`, `{"x":1}`},
		{"metadata that is none", `{"metadata":{"a":"1"}}`, updated, `{"metadata":"text","x":2}`,
			`{"metadata":{"a":"1"},"x":2}`},
		{"metadata nested is a value", `{"metadata":{"a":{"x":1}}}`, updated, `{"metadata":{"a":{"y":2}}}`,
			`{"metadata":{"a":{"y":2}}}`},
		{"the last of two counts", ``, created,
			`{"title":"a","title":"b","metadata":{"a":"1"},"metadata":{"b":"1","b":"2"}}`, `{"title":"b","metadata":{"b":"2"}}`},
		{"halves of pairs are names of their own", `{"metadata":{"\ud800":"1","\ud801":"2","\ufffd":"3"}}`, updated,
			`{"metadata":{"\uD801":null}}`, `{"metadata":{"\ud800":"1","\ufffd":"3"}}`},
		{"marks cannot be set", `{"archived_at":"x"}`, updated,
			`{"archived_at":null,"deleted_at":"2026","arch\u0069ved_at":1}`, `{"archived_at":"x"}`},
		{"archived", `{"title":"a"}`, archived, `{"title":"b"}`, `{"title":"a","archived_at":"` + stamp1 + `"}`},
		{"archived again", `{"archived_at":"x","title":"a"}`, archived, `{}`, `{"archived_at":"` + stamp1 + `","title":"a"}`},
		{"deleted", ``, deleted, ``, `{"deleted_at":"` + stamp1 + `"}`},
		{"no object", `{"a":1}`, updated, `["title"]`, `{"a":1}`},
		{"null", `{"a":1}`, updated, `null`, `{"a":1}`},
		{"cut short", `{"a":1}`, updated, `{"title":"b"`, `{"a":1}`},
		{"garbage", `{"a":1}`, deleted, "\x00\xff{", `{"a":1}`},
		{"deep", `{"a":1}`, updated, `{"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, `{"a":1}`},
		{"other types", `{"a":1}`, schema.TypeRunLifecycle, `{"state":"done"}`, `{"a":1}`},
		{"a description that is none", `[1]`, updated, `{"a":1}`, `{"a":1}`},
		{"no description, no object", ``, created, `"x"`, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old, payload := json.RawMessage(tt.old), []byte(tt.payload)
			if tt.old == "" {
				old = nil
			}
			got := schema.MergeSession(old, tt.typ, stamp1, payload)
			if string(got) != tt.want || got == nil != (tt.want == "") {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if string(old) != tt.old || string(payload) != tt.payload {
				t.Errorf("what was given has changed: %s, %s", old, payload)
			}
		})
	}
}

// TestMergeSessionIsBounded: what is too long is refused whole; marks are always taken.
func TestMergeSessionIsBounded(t *testing.T) {
	fill := func(n int) string { return `{"title":"` + strings.Repeat("x", n-len(`{"title":""}`)-1) + `"}` }
	full := schema.MergeSession(nil, schema.TypeSessionCreated, stamp1, []byte(fill(schema.MaxSession)))
	if len(full) < schema.MaxSession-1 {
		t.Fatalf("%d bytes are refused", schema.MaxSession)
	}
	if got := schema.MergeSession(nil, schema.TypeSessionCreated, stamp1, []byte(fill(schema.MaxSession+2))); got != nil {
		t.Errorf("%d bytes are taken", len(got))
	}
	if got := schema.MergeSession(full, schema.TypeSessionUpdated, stamp1,
		[]byte(`{"metadata":{"a":"1"}}`)); string(got) != string(full) {
		t.Errorf("%d bytes are taken", len(got))
	}
	marked := schema.MergeSession(full, schema.TypeSessionArchived, stamp1, []byte(`{}`))
	marked = schema.MergeSession(marked, schema.TypeSessionDeleted, stamp2, []byte(`{}`))
	if f := schema.FactsOf(marked); f.Archived.IsZero() || f.Deleted.IsZero() {
		t.Errorf("a full description is not marked: %+v", f)
	}
	if got := schema.MergeSession(marked, schema.TypeSessionUpdated, stamp1, []byte(`{"title":"short"}`)); len(got) > 200 {
		t.Errorf("what makes it shorter is refused: %d bytes", len(got))
	}
	many := strings.Builder{}
	many.WriteString(`{"x":0`)
	for i := range 60_000 {
		fmt.Fprintf(&many, `,"k%d":1`, i)
	}
	took := cputime.Of(func() {
		if got := schema.MergeSession(full, schema.TypeSessionUpdated, stamp1,
			[]byte(many.String()+"}")); string(got) != string(full) {
			t.Errorf("%d bytes are taken", len(got))
		}
	})
	if took > 5*time.Second {
		t.Errorf("60,000 fields take %v", took)
	}
}

// TestMergeSessionAgain: events that are handed in again in their order change nothing, and neither does one that
// was missed when those after it are handed in again: stores are told in whichever order packs come.
func TestMergeSessionAgain(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	types := []string{schema.TypeSessionCreated, schema.TypeSessionUpdated, schema.TypeSessionUpdated,
		schema.TypeSessionArchived, schema.TypeSessionDeleted}
	values := []string{`1`, `"a"`, `null`, `{"x":1}`, `{"x":null,"y":2}`}
	for range 2000 {
		var steps []sessionStep
		for i := range 2 + rnd.IntN(6) {
			payload := fmt.Sprintf(`{%q:%s,%q:%s}`, []string{"title", "metadata", "agent"}[rnd.IntN(3)], values[rnd.IntN(5)],
				[]string{"title", "metadata", "agent"}[rnd.IntN(3)], values[rnd.IntN(5)])
			steps = append(steps, sessionStep{types[rnd.IntN(5)], fmt.Sprintf("2026-01-02T03:04:%02dZ", i), payload})
		}
		want := mergeAll(nil, steps)
		late := rnd.IntN(len(steps))
		without := append(append([]sessionStep{}, steps[:late]...), steps[late+1:]...)
		got := mergeAll(mergeAll(nil, without), steps[late:])
		if !sameJSON(t, got, want) {
			t.Fatalf("%v\nwithout %d and then again: %s\nin order: %s", steps, late, got, want)
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	one, _ := json.Marshal(x)
	two, _ := json.Marshal(y)
	return string(one) == string(two)
}

func TestFactsOf(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		session string
		want    schema.SessionFacts
	}{
		{``, schema.SessionFacts{}}, {`null`, schema.SessionFacts{}}, {`{"agent":null}`, schema.SessionFacts{}},
		{`{`, schema.SessionFacts{}},
		{`{"agent":"agent_1"}`, schema.SessionFacts{Agent: "agent_1"}},
		{`{"agent":{"id":"agent_\u0031","type":"agent"}}`, schema.SessionFacts{Agent: "agent_1"}},
		{`{"agent":{"id":7}}`, schema.SessionFacts{}}, {`{"agent":["a"]}`, schema.SessionFacts{}},
		{`{"agent":"a\u0000"}`, schema.SessionFacts{}}, {`{"agent":"\ud800"}`, schema.SessionFacts{}},
		{`{"agent":"` + strings.Repeat("a", 257) + `"}`, schema.SessionFacts{}},
		{`{"archived_at":"` + stamp1 + `"}`, schema.SessionFacts{Archived: at}},
		{`{"deleted_at":"2026-01-02T05:04:05+02:00"}`, schema.SessionFacts{Deleted: at}},
		{`{"deleted_at":"0000-01-01T00:00:00Z","archived_at":"9999-12-31T23:59:59-01:00"}`,
			schema.SessionFacts{Archived: time.Unix(0, 0).UTC(), Deleted: time.Unix(0, 0).UTC()}},
		{`{"tags":["a","b\u0021","a",1,"","a,b"],"metadata":{"k":1.0}}`,
			schema.SessionFacts{Tags: []string{"a", "b!"}, Metadata: []byte(`{"k":1.0}`)}},
		{`{"tags":"a","metadata":{"k":"` + strings.Repeat("v", schema.MaxMetadata) + `"}}`, schema.SessionFacts{}},
		{`{"deleted_at":"yesterday","archived_at":7}`,
			schema.SessionFacts{Archived: time.Unix(0, 0).UTC(), Deleted: time.Unix(0, 0).UTC()}},
	} {
		if got := schema.FactsOf(json.RawMessage(tt.session)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v", tt.session, got)
		}
	}
}

func FuzzMergeSession(f *testing.F) {
	f.Add([]byte(`{"metadata":{"a":"1"}}`), []byte(`{"metadata":{"a":null},"title":"x"}`))
	f.Add([]byte(`[]`), []byte("{\"\\ud800\":\"\x00\"}"))
	f.Fuzz(func(t *testing.T, old, payload []byte) {
		got := old
		for _, typ := range []string{schema.TypeSessionCreated, schema.TypeSessionArchived, schema.TypeSessionUpdated,
			schema.TypeSessionDeleted} {
			next := schema.MergeSession(got, typ, stamp1, payload)
			if string(next) != string(got) && !json.Valid(next) {
				t.Fatalf("%q", next)
			}
			got = next
		}
		if again := schema.MergeSession(got, schema.TypeSessionDeleted, stamp1, payload); string(again) != string(got) {
			t.Fatalf("%q, again %q", got, again)
		}
		_ = schema.FactsOf(got)
	})
}
