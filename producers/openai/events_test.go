package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentstream/producers/provider"
	"agentstream/schema"
)

// checkEvents holds events to what the log takes: bounds, form, JSON Schema, framing.
func checkEvents(t testing.TB, events []schema.Event) {
	t.Helper()
	for i := range events {
		e := &events[i]
		numbered := *e
		numbered.ID, numbered.TS, numbered.RunID, numbered.Seq = "evt_1", "2026-01-02T03:04:05Z", "run_1", 1
		line := numbered.AppendLine(nil)
		if bytes.ContainsAny(line, "\n\r") {
			t.Fatalf("event %d breaks its line: %.300q", i, line)
		}
		if back, err := schema.DecodeLine(line); err != nil || !bytes.Equal(back.Payload, e.Payload) {
			t.Fatalf("event %d does not come back: %v\n%.300s", i, err, line)
		}
		if err := validate(t, e); err != nil {
			t.Fatalf("event %d, %s: %v\n%.300s", i, e.Type, err, e.Payload)
		}
	}
	checkFraming(t, events)
}

// checkFraming: every message and block that begins ends, once and within the other, and every event
// is fit for the log.
func checkFraming(t testing.TB, events []schema.Event) {
	t.Helper()
	message, blocks, used := "", map[string]bool{}, map[string]bool{}
	for i := range events {
		e := &events[i]
		if err := e.CheckNew("run_1"); err != nil {
			t.Fatalf("event %d: %v\n%.300s", i, err, e.Payload)
		}
		if strings.HasPrefix(e.Type, "custom.") {
			continue
		}
		p, _ := provider.Parse(e.Payload)
		index, id := string(p.Get("index")), p.Str("message_id")
		switch e.Type {
		case schema.TypeMessageStart:
			if message != "" {
				t.Fatalf("event %d: %v begins within %s", i, id, message)
			}
			message, used = id, map[string]bool{}
		case schema.TypeMessageEnd:
			if id != message || len(blocks) > 0 {
				t.Fatalf("event %d: %v ends while %q and the blocks %v are open", i, id, message, blocks)
			}
			message = ""
		case schema.TypeBlockStart:
			if used[index] || message == "" {
				t.Fatalf("event %d: block %v begins again in %q", i, index, message)
			}
			blocks[index], used[index] = true, true
		case schema.TypeBlockEnd:
			if !blocks[index] {
				t.Fatalf("event %d: block %v ends and is not open", i, index)
			}
			delete(blocks, index)
		case schema.TypeToolStart:
		default:
			if index != "" && !blocks[index] {
				t.Fatalf("event %d: %s in block %v, which is not open", i, e.Type, index)
			}
		}
	}
	if message != "" {
		t.Fatalf("message %s is never closed", message)
	}
}

func object(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("%v: %.200s", err, raw)
	}
	return m
}

var compiled = map[string]*jsonschema.Schema{}

func validate(t testing.TB, e *schema.Event) error {
	s := compiled[e.Type]
	if s == nil {
		info, err := schema.Lookup(e.Type)
		if err != nil {
			return err
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(info.Schema))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("s", doc); err != nil {
			t.Fatal(err)
		}
		s = c.MustCompile("s")
		if !strings.HasPrefix(e.Type, "custom.") {
			compiled[e.Type] = s
		}
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Payload))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

// story prints events as type and payload, one a line.
func story(events []schema.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s %s\n", e.Type, e.Payload)
	}
	return b.String()
}
