package producers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"agentstream/schema"
	"agentstream/schema/assemble"
)

const (
	// maxKept bounds the content of one open message, in bytes: more would not fit the event that ends it.
	maxKept = 384 << 10
	// maxUsage bounds the usage that is kept of one, in bytes.
	maxUsage = 16 << 10
	// maxBegun bounds the inputs of one message that are open, in bytes. One call's is at most maxKept.
	maxBegun = 4 << 20
)

// closeMessage emits the end of a message that was cut short.
func closeMessage(m *assemble.Message, c Closing, add func(string, json.RawMessage)) {
	for _, b := range m.Blocks {
		if !b.Ended {
			add(schema.TypeBlockEnd, cutBlock(m.ID, b))
		}
	}
	end, omitted := withContent(object(nil).text("message_id", m.ID), m, m.Unkept)
	end = end.text("stop_reason", c.word()).raw("stop_sequence", []byte("null"))
	if len(m.Usage) > 0 {
		end = end.raw("usage", m.Usage)
	}
	end = end.yes("incomplete", true)
	if c.Failed {
		end = end.raw("error", object(nil).text("type", "error").str("message", shorten(c.Reason, maxReason)).close())
	}
	add(schema.TypeMessageEnd, omitted(end).close())
}

// cutBlock is the end of a block that was cut short.
func cutBlock(message string, b *assemble.Block) json.RawMessage {
	return object(nil).integer("index", b.Index).text("message_id", message).yes("complete", false).
		text("problem", "cut short").str("call_id", b.CallID).close()
}

// withContent adds the content of a message, if it is known and fits. omitted adds what is left out: it, and so many
// bytes of usage.
func withContent(end object, m *assemble.Message, usage int) (with object, omitted func(object) object) {
	size, kept := m.Size()
	var content []byte
	if kept {
		content = contentOf(m)
		size = len(content)
	}
	fits := kept && size <= maxKept
	if fits {
		end = end.raw("content", content)
	}
	return end, func(o object) object {
		var names []string
		n := usage
		if !fits {
			names, n = append(names, `"content"`), n+size
		}
		if usage > 0 {
			names = append(names, `"usage"`)
		}
		if names == nil {
			return o
		}
		return o.raw("omitted", []byte("["+strings.Join(names, ",")+"]")).integer("omitted_bytes", int64(n))
	}
}

// contentOf returns a message so far as a list of blocks.
func contentOf(m *assemble.Message) []byte {
	out := []byte{'['}
	for i, b := range m.Blocks {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, blockOf(b)...)
	}
	return append(out, ']')
}

// blockOf returns a block so far. A call whose input is not complete carries what there is of it as
// partial_json. The names of blocks are those that producers gave, also of calls that a provider makes itself.
func blockOf(b *assemble.Block) json.RawMessage {
	head, text, tail, input := b.Content()
	o := object(nil).text("type", b.Word)
	switch {
	case b.Tool != "" && b.Ended && b.Complete && (input != nil || len(text) == 0):
		if input == nil {
			input = []byte("{}")
		}
		return o.text("id", b.CallID).text("name", b.Tool).raw("input", input).close()
	case b.IsCall:
		return o.text("id", b.CallID).text("name", b.Tool).inner("partial_json", text).close()
	case b.Kind == assemble.Thinking:
		signature := schema.Field(bytes.Join([][]byte{{'{'}, bytes.TrimPrefix(tail, []byte{','}), {'}'}}, nil), "signature")
		return object(nil).text("type", "thinking").inner("thinking", text).raw("signature", signature).close()
	case b.Media != nil && len(text) == 0:
		return o.raw("media_type", b.Media).raw("source", []byte(`{"kind":"deltas"}`)).close()
	case b.Raw && len(text) == 0:
		return bytes.TrimSpace(head)
	}
	return o.inner("text", text).close()
}

// ReadOpen reads what of a run is open out of the log, for an agent that goes on with it and for whoever
// ends it in its place. last is the newest seq that was read, 0 when the log has nothing of the run. What
// has left the log's window is not seen: of a message that began there, only its end is known to be open
// when it has not come.
//
// It costs one reading of the run. Events are not decoded.
func ReadOpen(ctx context.Context, log Log, key schema.RunKey) (o *Open, last schema.Seq, err error) {
	o = new(Open)
	for p, err := range log.Since(ctx, key, 0) {
		if err != nil {
			return nil, 0, fmt.Errorf("producers: read what is open in %s behind %d: %w", key, last, err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				return nil, 0, fmt.Errorf("producers: read what is open in %s behind %d: %w", key, last, err)
			}
			last = r.Seq
			o.begun = o.begun || string(r.Type) == schema.TypeTurnStart
			if _, err := o.reading().Next(r); err != nil {
				return nil, 0, fmt.Errorf("producers: read what is open in %s: event %d: %w", key, r.Seq, err)
			}
		}
	}
	return o, last, nil
}
