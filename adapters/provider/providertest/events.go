package providertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// Decode returns the events of a whole body.
func Decode(t testing.TB, d *provider.Decoder, body []byte) []schema.Event {
	t.Helper()
	return inPieces(t, d, body, func() int { return len(body) })
}

func inPieces(t testing.TB, d *provider.Decoder, body []byte, size func() int) (events []schema.Event) {
	t.Helper()
	for rest := body; len(rest) > 0; {
		n := min(len(rest), size())
		more, err := d.Write(rest[:n])
		if err != nil {
			t.Fatal(err)
		}
		events, rest = append(events, more...), rest[n:]
	}
	return append(events, d.Close()...)
}

// CheckPieces: the size of the pieces in which a body comes changes nothing. size returns that of the
// next piece.
func CheckPieces(t testing.TB, fresh func() *provider.Decoder, body []byte, size func() int) {
	t.Helper()
	want := Lines(Decode(t, fresh(), body))
	if got := Lines(inPieces(t, fresh(), body, size)); got != want {
		t.Fatalf("in pieces\n%.2000s\nwhole\n%.2000s", got, want)
	}
}

// CheckEvents holds events to what the log takes: bounds, form, JSON Schema, framing.
func CheckEvents(t testing.TB, events []schema.Event) {
	t.Helper()
	for i := range events {
		e := &events[i]
		numbered := *e
		numbered.ID, numbered.RunID, numbered.Seq = "evt_1", "run_1", 1
		if numbered.TS == "" {
			numbered.TS = "2026-01-02T03:04:05Z"
		}
		line := numbered.AppendLine(nil)
		if bytes.ContainsAny(line, "\n\r") {
			t.Fatalf("event %d breaks its line: %.300q", i, line)
		}
		if back, err := schema.DecodeLine(line); err != nil || !bytes.Equal(back.Payload, e.Payload) {
			t.Fatalf("event %d does not come back: %v\n%.300s", i, err, line)
		}
		if err := CheckPayload(e); err != nil {
			t.Fatalf("event %d, %s: %v\n%.300s", i, e.Type, err, e.Payload)
		}
	}
	CheckFraming(t, events)
}

// CheckFraming: in each lane every message and block that begins ends, the one within the other, and
// every event may be appended.
func CheckFraming(t testing.TB, events []schema.Event) {
	t.Helper()
	checkFraming(t, events, false)
}

// CheckNumbered is CheckFraming for adapters that number the blocks themselves: no index comes again in
// a message, and deltas are of a block that is open. Indexes of a provider may be anything.
func CheckNumbered(t testing.TB, events []schema.Event) {
	t.Helper()
	checkFraming(t, events, true)
}

func checkFraming(t testing.TB, events []schema.Event, numbered bool) {
	t.Helper()
	lanes := map[string]*lane{}
	for i := range events {
		e := &events[i]
		if err := e.CheckNew("run_1"); err != nil {
			t.Fatalf("event %d, %s: %v\n%.300s", i, e.Type, err, e.Payload)
		}
		if strings.HasPrefix(e.Type, "custom.") {
			continue
		}
		l := lanes[e.ChildID]
		if l == nil {
			l = &lane{}
			lanes[e.ChildID] = l
		}
		if problem := l.add(e, numbered); problem != "" {
			t.Fatalf("event %d, %s in lane %q: %s", i, e.Type, e.ChildID, problem)
		}
	}
	for id, l := range lanes {
		if l.message != "" {
			t.Fatalf("message %s in lane %q is never closed", l.message, id)
		}
	}
}

// lane is what is open in one lane of a run.
type lane struct {
	message string
	blocks  map[string]int // how many of the message are open, by index
	used    map[string]bool
}

// add checks the next event.
func (l *lane) add(e *schema.Event, numbered bool) string {
	p, _ := provider.Parse(e.Payload)
	index, id := string(p.Get("index")), p.Str("message_id")
	switch e.Type {
	case schema.TypeMessageStart:
		if l.message != "" {
			return fmt.Sprintf("%s begins within %s", id, l.message)
		}
		l.message, l.blocks, l.used = id, map[string]int{}, map[string]bool{}
	case schema.TypeMessageEnd:
		if id != l.message || len(l.blocks) > 0 {
			return fmt.Sprintf("%s ends while %q and the blocks %v are open", id, l.message, l.blocks)
		}
		l.message = ""
	case schema.TypeBlockStart:
		if l.message == "" || numbered && l.used[index] {
			return fmt.Sprintf("block %s begins outside of a message or again in %q", index, l.message)
		}
		l.blocks[index]++
		l.used[index] = true
	case schema.TypeBlockEnd:
		if l.blocks[index] == 0 {
			return fmt.Sprintf("block %s ends and is not open", index)
		}
		if l.blocks[index]--; l.blocks[index] == 0 {
			delete(l.blocks, index)
		}
	case schema.TypeToolStart:
	default:
		if numbered && index != "" && l.blocks[index] == 0 {
			return fmt.Sprintf("block %s is not open", index)
		}
	}
	return ""
}

// compiled are the schemas of the catalogue by their text.
var compiled = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	custom, err := schema.Lookup("custom.x")
	if err != nil {
		return nil, err
	}
	all := map[string]*jsonschema.Schema{}
	for _, info := range append(schema.Types(), custom) {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(info.Schema))
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", info.Name, err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("s", doc); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", info.Name, err)
		}
		if all[info.Schema], err = c.Compile("s"); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", info.Name, err)
		}
	}
	return all, nil
})

// CheckPayload holds a payload to the JSON Schema of its type.
func CheckPayload(e *schema.Event) error {
	all, err := compiled()
	if err != nil {
		return err
	}
	info, err := schema.Lookup(e.Type)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Payload))
	if err != nil {
		return err
	}
	return all[info.Schema].Validate(doc)
}

// Lines are events as the log's lines.
func Lines(events []schema.Event) string {
	var b []byte
	for i := range events {
		b = append(events[i].AppendLine(b), '\n')
	}
	return string(b)
}

// Print returns events as type and payload, one a line.
func Print(events []schema.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s %s\n", e.Type, e.Payload)
	}
	return b.String()
}

// CheckPrinted compares the events of a body with their printed form, and holds them to what the log takes.
func CheckPrinted(t testing.TB, events []schema.Event, want string) {
	t.Helper()
	CheckEvents(t, events)
	if got := Print(events); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("\n got\n%s\nwant\n%s", got, want)
	}
}

// Object decodes a JSON object.
func Object(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	m, ok := Value(t, raw).(map[string]any)
	if !ok {
		t.Fatalf("not an object: %.200s", raw)
	}
	return m
}

// Value decodes a JSON value.
func Value(t testing.TB, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %.200s", err, raw)
	}
	return v
}

// Text returns a decoded string, nil for all else.
func Text(v any) *string {
	if s, ok := v.(string); ok {
		return &s
	}
	return nil
}
