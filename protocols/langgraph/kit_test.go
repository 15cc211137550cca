package langgraph

import (
	"bytes"
	"encoding/json"
	"flag"
	"iter"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/protocols/langgraph/langgraphtest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	log     = schematest.Short
	records = schematest.Records
)

func walk(list []schema.Record) Records {
	return func(after, through schema.Seq) iter.Seq2[schema.Record, error] {
		return func(yield func(schema.Record, error) bool) {
			for _, r := range list {
				if r.Seq > after && r.Seq <= through && !yield(r, nil) {
					return
				}
			}
		}
	}
}

// Of langgraphtest.
const (
	everything  = langgraphtest.Everything
	allChannels = langgraphtest.AllChannels
)

// filters are those that streams are resumed under.
var filters = langgraphtest.Filters

func requested(tb testing.TB, body string) dialect.Request {
	tb.Helper()
	req, err := Dialect{}.Open(dialect.Input{Body: []byte(body), Path: map[string]string{"run": schematest.Root}})
	if err != nil {
		tb.Fatal(err)
	}
	return req
}

func projector(tb testing.TB, body string) *Projector {
	return Dialect{}.Projector(requested(tb, body)).(*Projector)
}

// project returns all that a projector shows of records, as lines of data.
func project(tb testing.TB, p *Projector, list []schema.Record) (all []dialect.Frame) {
	tb.Helper()
	var frames dialect.Frames
	for _, r := range list {
		frames.Reset()
		if err := p.Project(&frames, r); err != nil {
			tb.Fatalf("seq %d: %v", r.Seq, err)
		}
		for _, f := range frames.List {
			if p.req.Select != nil && !p.req.Select.Match(&f) {
				continue
			}
			f.Data, f.Token, f.Event, f.Lane = bytes.Clone(f.Data), bytes.Clone(f.Token), bytes.Clone(f.Event),
				bytes.Clone(f.Lane)
			all = append(all, f)
		}
	}
	return all
}

// event is what a client reads of one.
type event struct {
	Type    string
	EventID string `json:"event_id"`
	Seq     int64
	RunID   string `json:"run_id"`
	Method  string
	Params  struct {
		Namespace []string
		Timestamp *int64
		Node      string
		Data      json.RawMessage
	}
	d data
}

type data struct {
	Event     string
	ID        string
	RunID     string `json:"run_id"`
	MessageID string `json:"message_id"`
	Role      string
	Index     int
	Content   content
	Delta     struct {
		Type, Text, Reasoning, Data string
		Fields                      content
	}
	Reason      string
	Message     string
	Error       string
	Usage       map[string]any
	Call        string `json:"tool_call_id"`
	Name        string
	InterruptID string          `json:"interrupt_id"`
	Interrupts  []string        `json:"interrupt_ids"`
	Payload     json.RawMessage `json:"payload"`
	Value       json.RawMessage `json:"value"`
	Cause       *struct {
		Type string
		Call string `json:"tool_call_id"`
	}
}

type content struct {
	Type, Text, Reasoning, ID, Name string
	Base64, Data                    string
	Args                            json.RawMessage
	Value                           json.RawMessage
	Annotations                     []json.RawMessage
}

func events(tb testing.TB, frames []dialect.Frame) (all []event) {
	tb.Helper()
	for _, f := range frames {
		var e event
		if err := json.Unmarshal(f.Data, &e); err != nil {
			tb.Fatalf("%s: %v", f.Data, err)
		}
		_ = json.Unmarshal(e.Params.Data, &e.d) // values are any JSON
		if e.EventID != string(f.Token) || bytes.ContainsAny(f.Data, "\n\r") || e.Method != string(f.Event) {
			tb.Fatalf("%s: token %s, event %s", f.Data, f.Token, f.Event)
		}
		all = append(all, e)
	}
	return all
}

func told(tb testing.TB, s schematest.Scenario) []event {
	return events(tb, project(tb, projector(tb, everything), records(tb, s)))
}

// short writes events in short, deltas that repeat once.
func short(all []event) string {
	var b strings.Builder
	was := ""
	for _, e := range all {
		line := strings.Join(append([]string{e.Method}, e.d.Event), " ")
		for _, more := range []string{e.d.Content.Type, e.d.Delta.Type, e.d.Error, e.d.Message, e.d.InterruptID,
			strings.Join(e.d.Interrupts, ","), e.d.Name} {
			if more != "" {
				line += " " + more
			}
		}
		if ns := strings.Join(e.Params.Namespace, "/"); ns != "" {
			line += " @" + ns
		}
		if line = strings.TrimSpace(line); line != was || !strings.Contains(line, "delta") {
			b.WriteString(line + "\n")
		}
		was = line
	}
	return b.String()
}

func want(tb testing.TB, got, want string) {
	tb.Helper()
	var b strings.Builder
	for line := range strings.Lines(want) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	if got != b.String() {
		tb.Errorf("got\n%s\nwant\n%s", got, b.String())
	}
}

// golden compares with a file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	dialecttest.Golden(t, *update, name, got)
}
