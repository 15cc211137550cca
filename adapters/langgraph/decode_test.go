package langgraph

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

var update = flag.Bool("update", false, "write the golden files")

const run = "thread_1"

func decode(tb testing.TB, lines string, cfg Config) (all []schema.Event, bad []*LineError) {
	tb.Helper()
	cfg.RunID = run
	for e, err := range Decode(strings.NewReader(lines), cfg) {
		var line *LineError
		if errors.As(err, &line) {
			bad = append(bad, line)
		} else if err != nil {
			tb.Fatal(err)
		} else {
			all = append(all, e)
		}
	}
	return all, bad
}

// short writes events one to a line: lane, type, payload.
func short(all []schema.Event) string {
	var b strings.Builder
	lanes := map[string]int{}
	for _, e := range all {
		n := lanes[e.ChildID]
		if e.ChildID != "" && n == 0 {
			n = len(lanes) + 1
			lanes[e.ChildID] = n
		}
		fmt.Fprintf(&b, "%d %s %s\n", n, e.Type, e.Payload)
	}
	return b.String()
}

// line is one of the protocol, at a namespace of segments.
func line(method, scope, data string) string {
	return fmt.Sprintf(`{"type":"event","method":%q,"params":{"namespace":[%s],"timestamp":1700000000123,"data":%s}}`+
		"\n", method, scope, data)
}

// TestGolden: what becomes of each method, and of what the catalogue has no place for.
func TestGolden(t *testing.T) {
	in, err := os.ReadFile("testdata/methods.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	got, bad := decode(t, string(in), Config{Lifecycle: true})
	if len(bad) > 0 {
		t.Error(bad[0])
	}
	checked(t, got)
	if *update {
		if err := os.WriteFile("testdata/methods.golden", []byte(short(got)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/methods.golden")
	if err != nil {
		t.Fatal(err)
	}
	if short(got) != string(want) {
		t.Errorf("testdata/methods.golden differs; -update writes it. Got\n%s", short(got))
	}
	if got[0].TS != "2023-11-14T22:13:20.123Z" {
		t.Errorf("ts %s", got[0].TS)
	}
	for _, e := range got {
		if e.ChildID != "" && (len(e.Path) != 2 || e.Path[0] != run || e.Path[1] != e.ChildID) {
			t.Errorf("%s has the path %q", e.ChildID, e.Path)
		}
	}
}

// checked holds events to their schemas, to the log and to its framing.
func checked(tb testing.TB, all []schema.Event) {
	tb.Helper()
	providertest.CheckEvents(tb, all)
	for i := range all {
		if err := all[i].CheckNew(run); err != nil {
			tb.Fatalf("%s %s: %v", all[i].Type, all[i].Payload, err)
		}
	}
}

// TestBadLines: each line that cannot be read is told of by its number, the log says that it is missing, and the others
// are read.
func TestBadLines(t *testing.T) {
	good := line("custom", "", `{"name":"n","payload":1}`)
	for _, c := range []struct{ bad, why string }{
		{`{"method":`, "invalid JSON"},
		{"\"\xff\"", "invalid UTF-8"},
		{strings.Repeat("[", 200) + strings.Repeat("]", 200), "nested too deeply"},
		{`[]`, "not a protocol event: json: cannot unmarshal array"},
		{`{"type":"success","id":1,"result":{}}`, `its type is not "event"`},
		{`{"params":{"data":1}}`, "no method"},
		{`{"method":"values","params":{"namespace":[]}}`, "no params.data"},
		{`{"method":"values"}`, "no params.data"},
		{`{"method":7,"params":{"data":1}}`, "cannot unmarshal number"},
		{`{"method":"values","params":{"namespace":"a","data":1}}`, "cannot unmarshal string"},
		{`{"method":"values","params":{"namespace":[1],"data":1}}`, "cannot unmarshal number"},
		{`{"method":"values","params":{"data":"` + strings.Repeat("x", 2000) + `"}}`, "longer than 1000 bytes"},
	} {
		got, bad := decode(t, good+"\n"+c.bad+"\r\n"+good, Config{MaxLineBytes: 1000})
		if len(bad) != 1 || bad[0].Line != 3 || !strings.Contains(bad[0].Error(), "line 3: ") ||
			!strings.Contains(bad[0].Why, c.why) || !errors.Is(bad[0], schema.ErrMalformed) {
			t.Errorf("%.60s: %v", c.bad, bad)
		}
		if len(got) != 3 || got[0].Type != "custom.n" || got[1].Type != schema.TypeLoss || got[2].Type != "custom.n" ||
			!bytes.Contains(got[1].Payload, []byte(`"line 3: `)) {
			t.Errorf("%.60s: %s", c.bad, short(got))
		}
		checked(t, got)
	}
}

// TestAsTheyCome: the events of a line are there as soon as the line is.
func TestAsTheyCome(t *testing.T) {
	r, w := io.Pipe()
	got := make(chan string)
	go func() {
		defer close(got)
		for e, err := range Decode(r, Config{RunID: run}) {
			if err != nil {
				t.Error(err)
			}
			got <- e.Type
		}
	}()
	for _, name := range []string{"a", "b"} {
		if _, err := io.WriteString(w, line("custom", "", `{"name":"`+name+`"}`)); err != nil {
			t.Fatal(err)
		}
		if typ := <-got; typ != "custom."+name {
			t.Errorf("%s", typ)
		}
	}
	_ = w.Close()
	if typ, ok := <-got; ok {
		t.Errorf("%s behind the end", typ)
	}
}

// TestLanes: the lanes of a run do not grow with its steps, but with what runs at the same time; other threads have
// others.
func TestLanes(t *testing.T) {
	var b strings.Builder
	b.WriteString(line("lifecycle", "", `{"event":"running"}`))
	for i := range 200 {
		scope := fmt.Sprintf(`"child:%d"`, i)
		inner := fmt.Sprintf(`%s,"model:%d"`, scope, i)
		for _, s := range []string{scope, inner} {
			b.WriteString(line("lifecycle", s, `{"event":"started","graph_name":"g"}`))
		}
		b.WriteString(line("messages", inner, fmt.Sprintf(`{"event":"message-start","id":"m%d","run_id":"r%d"}`, i, i)))
		b.WriteString(line("messages", inner, fmt.Sprintf(`{"event":"message-finish","run_id":"r%d"}`, i)))
		b.WriteString(line("values", scope, `{"n":1}`))
		for _, s := range []string{inner, scope} {
			b.WriteString(line("lifecycle", s, `{"event":"completed","graph_name":"g"}`))
		}
	}
	b.WriteString(line("lifecycle", "", `{"event":"completed"}`))
	got, _ := decode(t, b.String(), Config{Lifecycle: true})
	checked(t, got)
	lanes, types := map[string]bool{}, map[string]int{}
	for _, e := range got {
		lanes[e.ChildID] = true
		types[e.Type]++
	}
	if len(lanes) != 3 || types[schema.TypeChildSpawn] != 2 || types[schema.TypeStateValues] != 200 {
		t.Errorf("%d lanes, %v", len(lanes), types)
	}
	// Without the ends nobody knows what has ended: still there are bounds, and nothing is lost.
	b.Reset()
	for i := range 1000 {
		b.WriteString(line("values", fmt.Sprintf(`"child:%d"`, i), `{"n":1}`))
		b.WriteString(line("messages", fmt.Sprintf(`"child:%d"`, i),
			fmt.Sprintf(`{"event":"message-start","run_id":"r%d"}`, i)))
	}
	got, _ = decode(t, b.String(), Config{})
	clear(lanes)
	values, starts := 0, 0
	for _, e := range got {
		lanes[e.ChildID] = true
		switch e.Type {
		case schema.TypeStateValues:
			values++
		case schema.TypeMessageStart, "custom.langgraph.messages":
			starts++
		}
	}
	if len(lanes) != maxLanes+1 || values != 1000 || starts != 1000 {
		t.Errorf("%d lanes, %d states, %d messages", len(lanes), values, starts)
	}
}

// TestTooLarge: a state over an event's limit is stored as omitted, with a loss; so is all else.
func TestTooLarge(t *testing.T) {
	big := `"` + strings.Repeat("x", schema.MaxEventBytes) + `"`
	for method, c := range map[string]struct{ data, typ, omitted string }{
		"values":  {`{"messages":[` + big + `]}`, schema.TypeStateValues, `["values"]`},
		"updates": {`{"node":"n","values":` + big + `}`, schema.TypeStateUpdate, `["data"]`},
		"custom":  {`{"name":"n","payload":` + big + `}`, "custom.n", `["data"]`},
		"a2a":     {big, "custom.langgraph.a2a", `["data"]`},
		"tasks":   {`{"id":"t","name":"n","input":` + big + `}`, schema.TypeTaskStart, `["data"]`},
	} {
		got, _ := decode(t, line(method, "", c.data)+line("custom", "", `{"name":"next"}`), Config{})
		checked(t, got)
		if len(got) != 3 || got[0].Type != c.typ || string(schema.Field(got[0].Payload, "omitted")) != c.omitted ||
			got[1].Type != schema.TypeLoss {
			t.Errorf("%s: %.300s", method, short(got))
		}
		if method == "values" && string(schema.Field(got[0].Payload, "values")) != "null" {
			t.Errorf("%.200s", got[0].Payload)
		}
	}
	// Text is cut into pieces, and none is lost.
	piece := strings.Repeat(`é\n`, 200_000)
	in := line("messages", `"n:1"`, `{"event":"message-start","id":"m","run_id":"r"}`) +
		line("messages", `"n:1"`, `{"event":"content-block-start","index":0,"content":{"type":"text","text":""},"run_id":"r"}`) +
		line("messages", `"n:1"`, `{"event":"content-block-delta","index":0,"delta":{"type":"text-delta","text":"`+
			piece+`"},"run_id":"r"}`) +
		line("messages", `"n:1"`, `{"event":"message-finish","run_id":"r"}`)
	got, _ := decode(t, in, Config{})
	checked(t, got)
	said := ""
	for _, e := range got {
		if e.Type == schema.TypeTextDelta {
			v := string(schema.Field(e.Payload, "text"))
			said += v[1 : len(v)-1]
		}
	}
	if said != piece {
		t.Errorf("%d bytes of %d", len(said), len(piece))
	}
}

// TestEnds: what is open when the stream ends is ended; what a reader says comes last.
func TestEnds(t *testing.T) {
	in := line("lifecycle", "", `{"event":"running"}`) +
		line("messages", `"n:1"`, `{"event":"message-start","id":"m","run_id":"r"}`)
	got, _ := decode(t, in, Config{Lifecycle: true})
	want := "0 run.lifecycle {\"state\":\"error\",\"reason\":\"the stream of events ended before the run\"}\n"
	if s := short(got); !strings.HasSuffix(s, want) || !strings.Contains(s, `"incomplete":true`) {
		t.Error(s)
	}
	checked(t, got)
	if got, _ = decode(t, in, Config{}); strings.Contains(short(got), schema.TypeRunLifecycle) ||
		!strings.Contains(short(got), `"incomplete":true`) {
		t.Error(short(got))
	}
	var last error
	broken := errors.New("broken")
	for _, err := range Decode(io.MultiReader(strings.NewReader(in), iotest.ErrReader(broken)), Config{RunID: run}) {
		last = err
	}
	if !errors.Is(last, broken) {
		t.Error(last)
	}
	// Requests that waited before the stream began are answered when the run goes on.
	got, _ = decode(t, line("lifecycle", "", `{"event":"running"}`)+line("lifecycle", "", `{"event":"completed"}`),
		Config{Lifecycle: true, Requests: []string{"b", "a"}})
	if s := short(got); !strings.HasPrefix(s,
		`0 input.answered {"request_id":"a"}`+"\n"+`0 input.answered {"request_id":"b"}`) ||
		!strings.Contains(s, `"state":"done"`) {
		t.Error(s)
	}
}

// FuzzDecode: no line makes it fail, and every event can be stored.
func FuzzDecode(f *testing.F) {
	in, err := os.ReadFile("testdata/methods.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(in)
	for l := range bytes.Lines(in) {
		f.Add(l)
		f.Add(l[:len(l)/2])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		n := 0
		for e, err := range Decode(bytes.NewReader(in), Config{RunID: run, Lifecycle: true, MaxLineBytes: 1 << 16}) {
			var line *LineError
			if err != nil && !errors.As(err, &line) {
				t.Fatal(err)
			}
			if err == nil {
				if err := e.CheckNew(run); err != nil {
					t.Fatalf("%s %s: %v", e.Type, e.Payload, err)
				}
				if err := providertest.CheckPayload(&e); err != nil {
					t.Fatalf("%s %s: %v", e.Type, e.Payload, err)
				}
				n++
			}
		}
		if strings.TrimSpace(strings.TrimPrefix(string(in), "\xef\xbb\xbf")) != "" && n == 0 {
			t.Errorf("%q is gone", in)
		}
	})
}

// TestCancelWhileAQuestionWaits reads what @langchain/langgraph 1.7 sends: a question ends the root in completed, or
// interrupted, without a reason, and the root runs again when it is resumed; one that is aborted while the question
// waits has failed, with the text of the abort.
func TestCancelWhileAQuestionWaits(t *testing.T) {
	const (
		begin = `{"method":"lifecycle","params":{"namespace":[],"data":{"event":"running","graph_name":"root"}}}`
		works = `{"method":"tasks","params":{"namespace":[],"data":{"id":"t","name":"ask","input":{},"interrupts":[]}}}`
		asks  = works + "\n" +
			`{"method":"tasks","params":{"namespace":[],"data":{"id":"t","name":"ask","result":{},"interrupts":[{"id":"q","value":1}],"error":null}}}`
		over = `{"method":"lifecycle","params":{"namespace":[],"data":{"event":"completed","graph_name":"root"}}}`
		held = `{"method":"lifecycle","params":{"namespace":[],"data":{"event":"interrupted","graph_name":"root"}}}`
		stop = `{"method":"lifecycle","params":{"namespace":[],"data":{"event":"failed","graph_name":"root","error":"cancelled by user"}}}`
	)
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"waits":             {[]string{begin, asks, over}, "running asks paused"},
		"is interrupted":    {[]string{begin, asks, held}, "running asks paused"},
		"is resumed":        {[]string{begin, asks, over, begin, over}, "running asks paused answered running done"},
		"is cancelled":      {[]string{begin, asks, stop}, "running asks error"},
		"is cancelled, new": {[]string{begin, asks, stop, begin, over}, "running asks error running done"},
	} {
		var got []string
		for e, err := range Decode(strings.NewReader(strings.Join(c.lines, "\n")+"\n"), Config{RunID: "r", Lifecycle: true}) {
			if err != nil {
				t.Fatal(err)
			}
			switch e.Type {
			case schema.TypeRunLifecycle:
				l, _ := schema.ParseLifecycle(e.Payload)
				got = append(got, string(l.State))
			case schema.TypeInputRequested:
				got = append(got, "asks")
			case schema.TypeInputAnswered:
				got = append(got, "answered")
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestInterruptedRootWaits: a root that is interrupted with an open question waits; one that was cancelled, which gives
// a reason, or asks nothing, is aborted.
func TestInterruptedRootWaits(t *testing.T) {
	const begin = `{"method":"lifecycle","params":{"namespace":[],"data":{"event":"running"}}}` + "\n"
	const asks = `{"method":"input.requested","params":{"namespace":[],"data":{"interrupt_id":"q","payload":1}}}` + "\n"
	end := func(more string) string {
		return `{"method":"lifecycle","params":{"namespace":[],"data":{"event":"interrupted"` + more + `}}}` + "\n"
	}
	for name, c := range map[string]struct{ lines, want string }{
		"asks":                {begin + asks + end(""), "paused"},
		"asks, was cancelled": {begin + asks + end(`,"reason":"cancelled"`), "aborted"},
		"asks nothing":        {begin + end(""), "aborted"},
	} {
		got := ""
		for e, err := range Decode(strings.NewReader(c.lines), Config{RunID: "r", Lifecycle: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == schema.TypeRunLifecycle {
				l, err := schema.ParseLifecycle(e.Payload)
				if err != nil {
					t.Fatal(err)
				}
				got = string(l.State)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
