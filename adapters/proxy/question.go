package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// question is what is kept of a request: what the user says and what tools answer, as far as it is new.
type question struct {
	c     *call
	read  bool // there is a conversation
	talk  conversation
	first []schema.Event // what is wrong with the request
}

// question waits for the request. The error is ctx's.
func (c *call) question(ctx context.Context) (*question, error) {
	q := &question{c: c}
	if c.p.cfg.Requests == RequestsNone {
		return q, nil
	}
	data, l, err := c.readRequest(ctx)
	if err != nil {
		return nil, err
	}
	if l != nil {
		c.p.reportLoss(Loss{Key: c.asked.key, Reason: l.reason, Bytes: l.bytes, Recorded: true}, nil)
		q.first = []schema.Event{c.here(lossEvent(*l))}
		return q, nil
	}
	q.parse(data)
	return q, nil
}

// parse reads a request's body.
func (q *question) parse(data []byte) {
	one := bytes.TrimSpace(data)
	if provider.Problem(one) == "" {
		if all, ok := provider.Parse(provider.OneLine(one)); ok {
			q.fields(all)
			return
		}
	}
	cfg := q.c.providerConfig()
	cfg.MaxFrameBytes = len(data) + 1
	d := provider.NewDecoder(q.c.api.provider, cfg, func(*provider.Writer) provider.Machine { return q })
	events, _ := d.Write(data) // it is not closed
	q.first = append(events, d.Close()...)
	speak(q.first, "user")
}

func (q *question) fields(all provider.Fields) {
	q.read = true
	q.talk = q.c.api.read(all)
	if q.c.model == "" {
		q.c.model = all.Str("model")
	}
}

// Frame takes the first of several values.
func (q *question) Frame(_ string, all provider.Fields) {
	if !q.read {
		copied, _ := provider.Parse(all.Encode())
		q.fields(copied)
	}
}

// Close does nothing: what is missing is not emitted.
func (q *question) Close() {}

// events returns what the request adds to what the lane holds.
func (q *question) events(m *memory) (events []schema.Event, what news) {
	if !q.read {
		return q.first, news{}
	}
	what = m.read(&q.talk, q.c.retries > 0)
	out := provider.NewWriter(q.c.api.provider, q.c.providerConfig())
	said := 0
	for _, it := range what.items {
		if it.kind == resultItem {
			out.Result(it.call, it.failed, it.output, it.typ)
			continue
		}
		said++
		q.message(out, it.parts, said)
	}
	events = out.Drain()
	speak(events, "user")
	return append(q.first, events...), what
}

// speak names who is behind events: tools, or somebody.
func speak(events []schema.Event, actor string) {
	for i := range events {
		events[i].Actor = actor
		if events[i].Type == schema.TypeToolEnd {
			events[i].Actor = "tool"
		}
	}
}

// message emits a user's message.
func (q *question) message(out *provider.Writer, parts []part, nth int) {
	id := "user_" + q.c.mint
	if nth > 1 {
		id = fmt.Sprintf("%s_%d", id, nth)
	}
	m := out.Start(id, "user", nil, nil)
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

// readRequest returns the request's body. It is nil when the client did not send it whole; a loss when it
// is too long, or cannot be read.
func (c *call) readRequest(ctx context.Context) ([]byte, *loss, error) {
	defer c.request.close("")
	most := c.p.cfg.CallBytes
	var data []byte
	body, err := decodeBody(reader{ctx, c.request}, c.coding)
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(body, int64(most)+1))
		body.Close()
	} else if err == io.EOF { // nothing to unpack
		err = nil
	}
	if ended := c.request.waitEnd(ctx); ended != nil {
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
	return append(keep, provider.Field{Name: "omitted", Value: provider.List(names)},
		provider.Field{Name: "omitted_bytes", Value: provider.Number(left)}).Encode()
}
