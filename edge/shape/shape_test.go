package shape

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

var key = schema.RunKey{Tenant: "acme", Run: "run"}

// records returns a scenario as it lies in the log.
func records(t testing.TB, s schematest.Scenario) []schema.Record {
	t.Helper()
	var out []schema.Record
	for _, p := range schematest.Packs(key, s, 64) {
		for r, err := range p.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
	}
	return out
}

// unfold returns what records of a view say: the parts of bundles one by one.
func unfold(t testing.TB, outs []Out) (events []schema.Event) {
	t.Helper()
	for _, o := range outs {
		e, err := schema.DecodeLine(o.Line)
		if err != nil {
			t.Fatalf("not a line: %v\n%s", err, o.Line)
		}
		if e.Seq != o.Seq || e.First() != o.First || string(o.Type) != e.Type || string(o.Child) != e.ChildID ||
			o.Record.First() != o.First {
			t.Fatalf("record %+v does not say what its line says: %s", o, o.Line)
		}
		if e.Type != BundleType {
			events = append(events, e)
			continue
		}
		var b struct {
			Deltas []struct {
				Type    string          `json:"type"`
				ChildID string          `json:"child_id"`
				Payload json.RawMessage `json:"payload"`
			} `json:"deltas"`
		}
		if err := json.Unmarshal(e.Payload, &b); err != nil || len(b.Deltas) < 2 {
			t.Fatalf("bundle of %d: %v: %s", len(b.Deltas), err, o.Line)
		}
		for _, d := range b.Deltas {
			events = append(events, schema.Event{Type: d.Type, ChildID: d.ChildID, Payload: d.Payload})
		}
	}
	return events
}

// place returns what of a delta's payload says where its text belongs.
func place(t testing.TB, payload []byte) string {
	t.Helper()
	var p map[string]json.RawMessage
	if err := json.Unmarshal(payload, &p); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %s %s", p["index"], p["call_id"], p["message_id"])
}

// texts joins what each lane said, by type and place.
func texts(t testing.TB, events []schema.Event) map[string]string {
	t.Helper()
	said := map[string]string{}
	for _, e := range events {
		_, text, _, ok := schema.SplitText(e.Payload)
		if !ok {
			continue
		}
		k := fmt.Sprintf("%s %s %s", e.Type, e.ChildID, place(t, e.Payload))
		said[k] += string(text)
	}
	return said
}

func events(t testing.TB, rs []schema.Record) (list []schema.Event) {
	t.Helper()
	for _, r := range rs {
		e, err := r.Event()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// checkTiles holds that a view has no hole: every first is the last seq + 1.
func checkTiles(t testing.TB, outs []Out, after schema.Seq) {
	t.Helper()
	for _, o := range outs {
		if o.First != after+1 || o.Seq < o.First || o.From < o.First || o.From > o.Seq {
			t.Fatalf("after %d comes %d (first %d, from %d): %s", after, o.Seq, o.First, o.From, o.Line)
		}
		after = o.Seq
	}
}

// checkSame holds that a view says what the records say: the same control events in the same order, the
// same texts, and each lane's own order.
func checkSame(t testing.TB, got []schema.Event, rs []schema.Record) {
	t.Helper()
	want := events(t, rs)
	g, w := texts(t, got), texts(t, want)
	for k := range w {
		if g[k] != w[k] {
			t.Fatalf("%s: %q, want %q", k, g[k], w[k])
		}
	}
	if len(g) != len(w) {
		t.Fatalf("%d kinds of text, want %d", len(g), len(w))
	}
	if a, b := skeleton(t, got, ""), skeleton(t, want, ""); a != b {
		t.Fatalf("control events\n%s\nwant\n%s", a, b)
	}
	children := map[string]bool{}
	for _, e := range want {
		children[e.ChildID] = true
	}
	for c := range children {
		if a, b := skeleton(t, got, "lane "+c), skeleton(t, want, "lane "+c); a != b {
			t.Fatalf("lane %q\n%s\nwant\n%s", c, a, b)
		}
	}
}

// skeleton returns the order of events without what shaping changes: of one lane, neighbouring deltas of
// one kind are one; over all lanes, only control events count.
func skeleton(t testing.TB, list []schema.Event, lane string) string {
	var b strings.Builder
	last := ""
	for _, e := range list {
		child, only := strings.CutPrefix(lane, "lane ")
		if only && e.ChildID != child {
			continue
		}
		_, _, _, text := schema.SplitText(e.Payload)
		info, _ := schema.Lookup(e.Type)
		if text && info.Delta {
			if !only {
				continue
			}
			if k := e.Type + place(t, e.Payload) + e.TurnID + strings.Join(e.Path, "/") + e.Actor + e.Cause; k != last {
				last = k
				fmt.Fprintln(&b, k)
			}
			continue
		}
		last = ""
		fmt.Fprintln(&b, e.Type, e.ChildID, string(e.Payload), e.ID)
	}
	return b.String()
}

func fold(f Folder, rs []schema.Record) []Out {
	var out []Out
	for _, r := range rs {
		out = f.Add(out, r)
	}
	return f.Flush(out)
}

// TestFilters holds what each filter shows, and that first_seq explains the rest.
func TestFilters(t *testing.T) {
	rs := records(t, schematest.ByName("children"))
	for _, tt := range []struct {
		children, types []string
		nested          bool
		want            func(schema.Event) bool
	}{
		{nil, nil, false, func(schema.Event) bool { return true }},
		{[]string{schematest.ChildA}, nil, false, func(e schema.Event) bool { return e.ChildID == schematest.ChildA }},
		{[]string{schematest.ChildA}, nil, true, func(e schema.Event) bool {
			return e.ChildID == schematest.ChildA || slices.Contains(e.Path, schematest.ChildA)
		}},
		{[]string{schema.RootLane}, nil, false, func(e schema.Event) bool { return e.ChildID == "" }},
		{[]string{schema.RootLane, schematest.ChildB}, nil, false,
			func(e schema.Event) bool { return e.ChildID == "" || e.ChildID == schematest.ChildB }},
		{nil, []string{"text.delta"}, false, func(e schema.Event) bool { return e.Type == "text.delta" }},
		{nil, []string{"tool.*", "run.lifecycle"}, false, func(e schema.Event) bool {
			return strings.HasPrefix(e.Type, "tool.") || e.Type == "run.lifecycle"
		}},
		{nil, []string{"*"}, false, func(schema.Event) bool { return true }},
		{[]string{"run_nobody"}, nil, false, func(schema.Event) bool { return false }},
	} {
		f := NewFilter(tt.children, tt.types, tt.nested)
		outs := fold(Folder{Filter: f}, rs)
		checkTiles(t, outs, 0)
		var want []string
		for _, e := range events(t, rs) {
			r, _ := schema.ScanLine(e.AppendLine(nil))
			if tt.want(e) || Terminal(r) {
				want = append(want, e.ID)
			}
		}
		var got []string
		for _, e := range unfold(t, outs) {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v %v: %d events, want %d", tt.children, tt.types, len(got), len(want))
		}
	}
}

// TestDroppedIsSeen holds that what a lagging client is spared is a gap, is counted, and is never a
// control event; and that the count stands in the final lifecycle of that client.
func TestDroppedIsSeen(t *testing.T) {
	for level, spared := range map[Drop][]string{
		DropReasoning: {"reasoning.delta"},
		DropDeltas:    {"reasoning.delta", "text.delta", "tool.input.delta", "tool.output.delta", "data.delta"},
	} {
		rs := records(t, schematest.Generate(2000, 3))
		f := Folder{Merge: true, Drop: level}
		var outs []Out
		for _, r := range rs {
			outs = f.Add(outs, r)
		}
		outs = f.Flush(outs)
		lost, covered, after := 0, 0, schema.Seq(0)
		told := f.Tell(nil)
		if len(told) != 1 || len(f.Tell(nil)) > 0 {
			t.Fatalf("told %d times", len(told))
		}
		checkGap(t, told[0], outs, f.Lost)
		for _, o := range outs {
			if o.Spared != (lost > 0 || o.First > after+1) {
				t.Fatalf("%d is spared: %v, %d are missing before", o.Seq, o.Spared, lost)
			}
			if o.First <= after {
				t.Fatalf("%d comes again behind %d", o.First, after)
			}
			lost += int(o.First - after - 1)
			covered += int(o.Seq - o.First + 1)
			after = o.Seq
			if slices.Contains(spared, string(o.Type)) {
				t.Fatalf("%s was not spared", o.Type)
			}
		}
		want := 0
		for _, r := range rs {
			if slices.Contains(spared, string(r.Type)) {
				want++
			}
		}
		if lost != f.Lost || lost != want || lost+covered != len(rs) {
			t.Fatalf("level %d: gaps of %d, counted %d, want %d; %d covered of %d", level, lost, f.Lost, want, covered, len(rs))
		}
		last := outs[len(outs)-1].WithDropped(f.Lost)
		e, err := schema.DecodeLine(last.Line)
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			State string `json:"state"`
			N     int    `json:"dropped_count"`
			Code  string `json:"dropped_code"`
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil || p.State != "done" || p.N != lost ||
			p.Code != "KAI-STREAM-BUF-0001" {
			t.Fatalf("final lifecycle: %+v %v: %s", p, err, last.Line)
		}
	}
}

// checkGap holds that a gap says between which numbers how many events are missing.
func checkGap(t testing.TB, o Out, outs []Out, lost int) {
	t.Helper()
	e, err := schema.DecodeLine(o.Line)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		First schema.Seq `json:"first_seq"`
		Last  schema.Seq `json:"last_seq"`
		N     int        `json:"dropped_count"`
		Code  string     `json:"dropped_code"`
	}
	after, first, last := schema.Seq(0), schema.Seq(0), schema.Seq(0)
	for _, o := range outs {
		if o.First > after+1 {
			first, last = cmp.Or(first, after+1), o.First-1
		}
		after = o.Seq
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil || e.Type != GapType || e.Seq != first-1 || !o.Spared ||
		p.First != first || p.Last != last || p.N != lost || p.Code != schema.CodeDropped {
		t.Fatalf("%d from %d to %d: %v: %s", lost, first, last, err, o.Line)
	}
}

// TestFieldsBesideTextAreJoined: deltas that differ in fields that say nothing of their place are one
// event, with the fields that they have alike; those that belong to different places are not.
func TestFieldsBesideTextAreJoined(t *testing.T) {
	for _, tt := range []struct {
		name     string
		payloads []string
		extra    []string // of the envelope
		want     string   // the one event's payload; "" when they stay apart
	}{
		{"a number beside the text", []string{`{"text":"a","logprob":-0.1}`, `{"text":"b","logprob":-0.2}`,
			`{"text":"c","logprob":-0.1}`}, nil, `{"text":"abc"}`},
		{"some alike", []string{`{"lang":"en","index":0,"logprob":-1,"text":"a","m":{"k":[1]}}`,
			`{"index":0,"text":"b","m":{"k":[1]},"lang":"en"}`}, nil, `{"lang":"en","index":0,"text":"ab","m":{"k":[1]}}`},
		{"one has none", []string{`{"text":"a"}`, `{"text":"b","logprobs":[{"t":"b"}]}`}, nil, `{"text":"ab"}`},
		{"spaces", []string{`{ "n" : 1 , "text" : "a" , "index" : 2 }`, `{"index":2,"text":"b","n":1}`}, nil,
			`{ "n" : 1 , "text" : "ab" , "index" : 2 }`},
		{"spaces, one left out", []string{`{ "n" : 1 , "text" : "a" , "index" : 2 }`, `{"index":2,"text":"b","n":2}`},
			nil, `{"text":"ab","index":2}`},
		{"another block", []string{`{"text":"a","index":0}`, `{"text":"b","index":1}`}, nil, ``},
		{"a block and none", []string{`{"text":"a","index":0}`, `{"text":"b"}`}, nil, ``},
		{"another call", []string{`{"text":"a","call_id":"x"}`, `{"text":"b","call_id":"y"}`}, nil, ``},
		{"the envelope", []string{`{"text":"a"}`, `{"text":"b"}`},
			[]string{`"turn_id":"t","x_ms":1`, `"turn_id":"t","x_ms":2`}, `{"text":"ab"}`},
		{"another turn", []string{`{"text":"a"}`, `{"text":"b"}`}, []string{`"turn_id":"t"`, `"turn_id":"u"`}, ``},
	} {
		var rs []schema.Record
		for i, payload := range tt.payloads {
			extra := ""
			if tt.extra != nil {
				extra = tt.extra[i] + ","
			}
			r, err := schema.ScanLine(fmt.Appendf(nil,
				`{"id":"evt_x","ts":"2026-01-02T03:04:05.000Z","type":"text.delta","run_id":"run","child_id":null,"seq":%d,%s"payload":%s}`, i+1, extra, payload))
			if err != nil {
				t.Fatal(err)
			}
			rs = append(rs, r)
		}
		outs := fold(Folder{Merge: true}, rs)
		checkTiles(t, outs, 0)
		if tt.want == "" {
			if len(outs) != len(rs) {
				t.Errorf("%s: joined: %s", tt.name, outs[0].Line)
			}
			continue
		}
		if len(outs) != 1 || string(outs[0].Payload()) != tt.want || bytes.Contains(outs[0].Line, []byte("x_ms")) {
			t.Errorf("%s: %d events, %s", tt.name, len(outs), outs[0].Line)
		}
	}
}

// TestPacerKeepsTheRate is T4 and more: whatever the interleaving, paced deltas are at most ten in a
// second; only what a control event pushes out, or what has waited for Patience, comes on top and is
// counted; control events leave in the moment in which they come, and nothing waits for longer than
// Patience.
func TestPacerKeepsTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		p := Pacer{Bundle: rapid.Bool().Draw(t, "bundle")}
		lanes := rapid.IntRange(1, 9).Draw(t, "lanes")
		controls := rapid.IntRange(0, 20).Draw(t, "controls in a hundred")
		now := time.Unix(1000, 0)
		var outs []Out
		var rs []schema.Record
		var sent []time.Time
		forced := map[int]bool{}
		came := map[schema.Seq]time.Time{}
		note := func(before int, was int) {
			for i := range outs[before:] {
				sent = append(sent, now)
				for seq := outs[before+i].From; seq <= outs[before+i].Seq; seq++ {
					if late := now.Sub(came[seq]); late > Patience {
						t.Fatalf("%d waited for %v", seq, late)
					}
				}
				forced[before+i] = p.Forced > was
			}
		}
		n := rapid.IntRange(1, 400).Draw(t, "events")
		for seq := schema.Seq(1); int(seq) <= n; seq++ {
			now = now.Add(time.Duration(rng.IntN(60)) * time.Millisecond)
			e := schema.Event{ID: "evt_x", TS: "2026-01-02T03:04:05.000Z", Type: "text.delta", RunID: "run", Seq: seq,
				Payload: fmt.Appendf(nil, `{"text":"%d "}`, seq)}
			if l := rng.IntN(lanes); l > 0 {
				e.ChildID = fmt.Sprint("c", l)
			}
			if rng.IntN(2) == 0 {
				e.Type = "reasoning.delta"
			}
			control := rng.IntN(100) < controls
			if control {
				e.Type, e.Payload = "progress", []byte(`{}`)
			}
			r, err := schema.ScanLine(e.AppendLine(nil))
			if err != nil {
				t.Fatal(err)
			}
			rs = append(rs, r)
			came[seq] = now
			for due, ok := p.Due(); ok && due.Before(now); due, ok = p.Due() {
				was := now
				now = due
				before, had := len(outs), p.Forced
				outs = p.Tick(outs, now)
				if len(outs) == before {
					t.Fatalf("due at %v, nothing came", due)
				}
				note(before, had)
				now = was
			}
			before := len(outs)
			was := p.Forced
			outs = p.Add(outs, now, r)
			if control && (len(outs) == before || outs[len(outs)-1].Seq != seq) {
				t.Fatalf("control event %d waits", seq)
			}
			note(before, was)
			if got := p.Watermark(seq); got > seq || len(outs) > 0 && got < outs[len(outs)-1].Seq {
				t.Fatalf("settled at %d of %d", got, seq)
			}
		}
		before, had := len(outs), -1
		outs = p.Flush(outs, now)
		note(before, had)
		after := schema.Seq(0)
		for _, o := range outs {
			if o.First != after+1 {
				t.Fatalf("after %d comes first %d", after, o.First)
			}
			after = o.Seq
		}
		if int(after) != n {
			t.Fatalf("ends at %d of %d", after, n)
		}
		var paced []time.Time
		for i, o := range outs {
			if !forced[i] && (o.IsDelta() || string(o.Type) == BundleType) {
				paced = append(paced, sent[i])
			}
		}
		for i := range paced {
			if i+Rate < len(paced) && paced[i+Rate].Sub(paced[i]) < time.Second {
				t.Fatalf("%d paced deltas within %v", Rate+1, paced[i+Rate].Sub(paced[i]))
			}
		}
	})
}

// TestJoinsCutCharacters holds that an escape pair that two deltas share is whole afterwards.
func TestJoinsCutCharacters(t *testing.T) {
	var rs []schema.Record
	for i, text := range []string{`a\ud83d`, `\ude00b`, `\"`, `\u0000`, `é`} {
		e := schema.Event{ID: "evt_x", TS: "2026-01-02T03:04:05.000Z", Type: "text.delta", RunID: "run",
			Seq: schema.Seq(i + 1), Payload: []byte(`{"index":0,"text":"` + text + `"}`)}
		r, err := schema.ScanLine(e.AppendLine(nil))
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	outs := fold(Folder{Merge: true}, rs)
	if len(outs) != 1 || !bytes.Contains(outs[0].Line,
		[]byte(`"seq":5,"first_seq":1,"payload":{"index":0,"text":"a\ud83d\ude00b\"\u0000é"}}`)) {
		t.Fatalf("%d: %s", len(outs), outs[0].Line)
	}
}

// TestDataIsNotText holds that pieces of data stay apart, whatever stands beside them.
func TestDataIsNotText(t *testing.T) {
	var rs []schema.Record
	for i := range 3 {
		e := schema.Event{ID: "evt_x", TS: "2026-01-02T03:04:05.000Z", Type: "data.delta", RunID: "run",
			Seq:     schema.Seq(i + 1),
			Payload: []byte(`{"media_type":"audio/pcm","data":"AAAA","text":"la"}`)}
		r, err := schema.ScanLine(e.AppendLine(nil))
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	if outs := fold(Folder{Merge: true, Bundle: true}, rs); len(outs) != 3 {
		t.Errorf("%d events", len(outs))
	}
}
