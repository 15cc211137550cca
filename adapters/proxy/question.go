package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// question is what is kept of a request: the user's last message, unless it has been emitted, and the
// results of calls that the lane has seen.
type question struct {
	c     *call
	out   *provider.Writer
	taken bool
	model string
}

// question waits for the request and returns its events. The error is ctx's.
func (c *call) question(ctx context.Context) ([]schema.Event, error) {
	if c.p.cfg.Requests == RequestsNone {
		return nil, nil
	}
	data, l, err := c.readRequest(ctx)
	if err != nil {
		return nil, err
	}
	if l != nil {
		c.p.lost(Loss{Key: c.asked.key, Reason: l.reason, Bytes: l.bytes, Recorded: true}, nil)
		return []schema.Event{c.here(lossEvent(*l))}, nil
	}
	return c.read(data), nil
}

// read returns the events of a request.
func (c *call) read(data []byte) []schema.Event {
	if one := new(bytes.Buffer); bytes.IndexByte(data, '\n') >= 0 && json.Compact(one, data) == nil {
		data = one.Bytes() // the decoder takes lines for values, and people and libraries write JSON in several
	}
	q := &question{c: c}
	cfg := c.place()
	cfg.MaxFrameBytes = len(data) + 1
	d := provider.NewDecoder(c.api.provider, cfg, func(out *provider.Writer) provider.Machine {
		q.out = out
		return q
	})
	events, _ := d.Write(data) // it is not closed
	events = append(events, d.Close()...)
	for i := range events {
		events[i].Actor = "user"
		if events[i].Type == schema.TypeToolEnd {
			events[i].Actor = "tool"
		}
	}
	if c.model == "" {
		c.model = q.model
	}
	return events
}

// readRequest returns the request's body. It is nil when the client did not send it whole; a loss when it
// is too long, or cannot be read.
func (c *call) readRequest(ctx context.Context) ([]byte, *loss, error) {
	defer c.request.close("")
	most := c.p.cfg.CallBytes
	var data []byte
	body, err := decoded(reader{ctx, c.request}, c.coding)
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(body, int64(most)+1))
		body.Close()
	} else if err == io.EOF { // nothing to unpack
		err = nil
	}
	if ended := c.request.ended(ctx); ended != nil {
		return nil, nil, ended
	}
	lost, why, _, cut := c.request.fate()
	switch {
	case cut != nil:
		return nil, nil, nil
	case len(data) > most || c.request.size() > int64(most):
		return nil, &loss{reasonRequest, c.request.size()}, nil
	case lost > 0:
		return nil, &loss{why, c.request.size()}, nil
	case err != nil:
		return nil, &loss{reasonCoding, c.request.size()}, nil
	}
	return data, nil, nil
}

// Frame takes the request.
func (q *question) Frame(_ string, all provider.Fields) {
	if q.taken {
		return
	}
	q.taken = true
	q.model = all.Str("model")
	q.c.api.read(q, all)
}

// Done does nothing: a request is no stream.
func (q *question) Done() {}

// Close does nothing: what is missing is not emitted.
func (q *question) Close() {}

// part is one piece of a message.
type part struct {
	text []byte // a JSON string; nil: it is something else
	kind string
	raw  []byte
}

// maxPart bounds a part of a message that is no text (an image, a document), in bytes: of a larger one
// only the small members are kept.
const maxPart = 64 << 10

// message emits a user's message.
func (q *question) message(parts []part, index int, scope string, last bool) {
	if len(parts) == 0 {
		return
	}
	var whole []byte
	for _, p := range parts {
		whole = append(append(whole, p.text...), p.raw...)
	}
	if !q.c.lane.fresh(whole, index, scope, last) {
		return
	}
	m := q.out.Start("user_"+q.c.mint, "user", nil, nil)
	for i, p := range parts {
		if p.text != nil {
			b := m.Begin(provider.TextBlock(i, "text"))
			b.Text(p.text)
			b.End(true)
			continue
		}
		raw := slim(p.raw)
		base, _ := provider.Parse(raw)
		m.Begin(&provider.Block{Index: i, Kind: p.kind, Base: base, Raw: raw}).End(true)
	}
	m.End(nil)
}

// slim leaves the large members out of a part, and names them.
func slim(raw []byte) []byte {
	if len(raw) <= maxPart {
		return raw
	}
	all, _ := provider.Parse(raw)
	var keep provider.Fields
	var names []json.RawMessage
	left := 0
	for _, f := range all {
		if len(f.Value) <= maxPart/8 && len(names)+len(keep) < 64 {
			keep = append(keep, f)
			continue
		}
		left += len(f.Value)
		if len(names) < 8 {
			names = append(names, provider.Quote(f.Name[:min(len(f.Name), 64)]))
		}
	}
	return append(keep, provider.Field{Name: "omitted", Value: provider.List(names)}, provider.Field{Name: "omitted_bytes", Value: provider.Number(left)}).Encode()
}

// result emits what a tool answered, once, if the lane has seen the call.
func (q *question) result(call string, failed bool, output []byte, kind string) {
	if q.c.lane.answered(provider.Bounded(call)) {
		q.out.Result(call, failed, output, kind)
	}
}

// anthropic reads a request of the Messages API.
func (q *question) anthropic(all provider.Fields) {
	list := provider.Elements(all.Get("messages"))
	var content []part
	at := -1
	for i, raw := range list {
		m, _ := provider.Parse(raw)
		if m.Str("role") != "user" {
			continue
		}
		if v := m.Get("content"); provider.IsString(v) {
			content, at = []part{{text: v}}, i
			continue
		}
		var parts []part
		for _, b := range provider.Elements(m.Get("content")) {
			f, _ := provider.Parse(b)
			if f.Str("type") == "tool_result" {
				q.result(f.Str("tool_use_id"), string(f.Get("is_error")) == "true", f.Get("content"), "tool_result")
				continue
			}
			parts = addPart(parts, f, b)
		}
		if len(parts) > 0 {
			content, at = parts, i
		}
	}
	q.message(content, at, "", at == len(list)-1)
}

// addPart takes an element of a content list: text, or something with a type of its own.
func addPart(parts []part, f provider.Fields, raw []byte) []part {
	if f == nil {
		return parts
	}
	typ := f.Str("type")
	if v := f.Get("text"); provider.IsString(v) && (typ == "text" || typ == "input_text" || typ == "") {
		return append(parts, part{text: v})
	}
	return append(parts, part{kind: strings.TrimPrefix(typ, "input_"), raw: raw})
}
