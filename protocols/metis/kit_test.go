package metis

import (
	"bytes"
	"encoding/json"
	"flag"
	"iter"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	log     = schematest.Short
	records = schematest.Records
)

// walk is a way through records, as a route has it.
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

func projector(f Filter, child string) *Projector {
	session := schematest.Root
	if child != "" {
		session = child
	}
	req := EventsRequest(session, f)
	req.Run, req.Child = schematest.Root, child
	return newProjector(req)
}

// told is a frame with the seq of its record.
type told struct {
	seq  schema.Seq
	data []byte
	id   string
	slot int
}

// project returns all that a projector shows of records.
func project(tb testing.TB, p *Projector, list []schema.Record) (all []told) {
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
			all = append(all, told{r.Seq, bytes.Clone(f.Data), string(f.Token), f.Slot})
		}
	}
	return all
}

// event is what tests read of one.
type event struct {
	ID        string
	Timestamp string
	Session   string  `json:"session_id"`
	Turn      *string `json:"turn_id"`
	Parent    *string `json:"parent_event_id"`
	Type      string
	Actor     string
	Payload   json.RawMessage
	p         payload
}

type payload struct {
	Message    string `json:"message_id"`
	Index      int    `json:"content_block_index"`
	Text       string
	Partial    string            `json:"partial_json"`
	ToolUse    string            `json:"tool_use_id"`
	Input      json.RawMessage   `json:"final_input"`
	Content    []json.RawMessage `json:"final_content"`
	Stop       string            `json:"stop_reason"`
	Class      string            `json:"error_class"`
	Worker     string            `json:"worker_session_id"`
	Reason     string
	ReasonText string `json:"reason_text"`
	Omitted    int64  `json:"omitted_bytes"`
	Mode       string `json:"failure_mode"`
}

func events(tb testing.TB, frames []told) (all []event) {
	tb.Helper()
	for _, f := range frames {
		var frame struct {
			Type  string
			Event event
		}
		if err := json.Unmarshal(f.data, &frame); err != nil || frame.Type != "event" {
			tb.Fatalf("%s: %v", f.data, err)
		}
		e := frame.Event
		_ = json.Unmarshal(e.Payload, &e.p) // payloads of producers are what they are
		if e.ID != f.id || bytes.ContainsAny(f.data, "\n\r") {
			tb.Fatalf("%s: token %s", f.data, f.id)
		}
		all = append(all, e)
	}
	return all
}

// golden compares with a file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	dialecttest.Golden(t, *update, name, got)
}

// types writes events in short, those that repeat once: "text.delta×3".
func types(all []event) string {
	var b strings.Builder
	for i := 0; i < len(all); {
		n := 1
		for i+n < len(all) && all[i+n].Type == all[i].Type && strings.HasSuffix(all[i].Type, "delta") {
			n++
		}
		if b.WriteString(all[i].Type); n > 1 {
			b.WriteString("×")
		}
		if e := all[i]; e.Actor == "worker" {
			b.WriteString("@")
		}
		switch p := all[i].p; {
		case p.Class != "":
			b.WriteString("(" + p.Class + ")")
		case strings.HasPrefix(all[i].Type, "turn.") && p.Stop+p.Reason != "", p.Stop != "":
			b.WriteString("(" + p.Stop + p.Reason + ")")
		case p.Mode != "":
			b.WriteString("(" + p.Mode + ")")
		}
		b.WriteString("\n")
		i += n
	}
	return b.String()
}
