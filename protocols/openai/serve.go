package openai

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// find returns the newest record of a run, and the projector that was fed it, or the last record of the response if
// that has ended. The error wraps dialect.ErrNotFound, or fanout.ErrNotFound, when there is none.
func find(ctx context.Context, c *protocol.Call, req dialect.Request) (schema.Seq, *projector, error) {
	head, p, err := protocol.Newest[*projector](ctx, c, req)
	if err != nil {
		return 0, nil, err
	}
	span := p.Span(req)
	switch {
	case span.First == 0:
		err = dialect.Refuse(dialect.ErrNotFound, "no response has this id")
	case span.Last > 0 && p.now.n != p.nth:
		p, err = protocol.StateAt[*projector](ctx, c, span.Last, req)
	}
	return head.Last, p, err
}

func reply(c *protocol.Call, p *projector) error {
	c.Reply(http.StatusOK, p.appendResponse(nil))
	return nil
}

// retrieve answers with a response as it stands.
func retrieve(ctx context.Context, c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	if _, err = q.Choice("stream", "false", "true"); err != nil {
		return err
	}
	req, err := request(c.Path("response"))
	if err != nil {
		return err
	}
	_, p, err := find(ctx, c, req)
	if err != nil {
		return err
	}
	return reply(c, p)
}

// cancel commands the agent to stop, once, and answers with the response.
func cancel(ctx context.Context, c *protocol.Call) error {
	req, err := request(c.Path("response"))
	if err != nil {
		return err
	}
	if _, _, err = find(ctx, c, req); err != nil {
		return err
	}
	change := protocol.Change[*projector]{Request: req}
	change.Events = []schema.Event{{Type: "command.cancel", Payload: c.By([]byte(`{}`))}}
	change.Options.IdempotencyKey = "openai cancel " + req.Span
	change.Allow = func(p *projector) error {
		if p.now.n != p.nth || !p.now.open {
			return protocol.ErrDone
		}
		return nil
	}
	if _, err = change.Once(ctx, c); err != nil {
		return err
	}
	_, p, err := find(ctx, c, req)
	if err != nil {
		return err
	}
	return reply(c, p)
}

// remove refuses: nothing is removed here.
func remove(c *protocol.Call) error {
	c.Header().Set("X-Should-Retry", "false")
	p := dialect.Problem{Status: http.StatusNotImplemented, Named: "unsupported",
		Message: "responses are not deleted one by one: runs are removed when their time is over"}
	c.Reply(p.Status, Dialect{}.AppendError(nil, p))
	return nil
}

// inputItems answers with what people have said to a response.
func inputItems(ctx context.Context, c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, err := q.Number("limit", 20, 100)
	if err != nil {
		return err
	}
	order, err := q.Choice("order", "desc", "asc")
	if err != nil {
		return err
	}
	after, err := q.One("after")
	if err != nil {
		return err
	}
	req, err := request(c.Path("response"))
	if err != nil {
		return err
	}
	items, err := listInput(ctx, c, req)
	if err != nil {
		return err
	}
	if order == "desc" {
		slices.Reverse(items)
	}
	if after != "" {
		i := slices.IndexFunc(items, func(it protocol.Item) bool { return it.ID == after })
		if i < 0 {
			return dialect.Refuse(dialect.ErrBadRequest, "after is the id of no item of this list")
		}
		items = items[i+1:]
	}
	page := protocol.Page{Limit: limit}
	for len(items) > 0 && !page.Full() {
		page.Add(items[0].ID, items[0].Data)
		items = items[1:]
	}
	o := page.Append(append(jsonscan.Object("{").Str("object", "list").Name("data"), '['))
	firstID, lastID := "", ""
	if n := len(page.Items); n > 0 {
		firstID, lastID = page.Items[0].ID, page.Items[n-1].ID
	}
	o = jsonscan.Object(append(o, ']')).NullStr("first_id", firstID).NullStr("last_id", lastID)
	c.Reply(http.StatusOK, jsonscan.Object(o).Bool("has_more", len(items) > 0).End())
	return nil
}

// listInput returns the input items of a response, the oldest first.
func listInput(ctx context.Context, c *protocol.Call, req dialect.Request) (list []protocol.Item, err error) {
	head, p, err := protocol.Newest[*projector](ctx, c, req)
	if err != nil {
		return nil, err
	}
	span := p.Span(req)
	if span.First == 0 {
		return nil, fmt.Errorf("response %s of %s: %w", req.Span, req.Run, fanout.ErrNotFound)
	}
	last := span.Last
	if last == 0 {
		last = head.Last
	}
	run := assemble.New(assemble.Limits{Message: 1 << 20, All: 4 << 20})
	for r, err := range c.Records(ctx, req.Run, span.First-1, last) {
		if err != nil {
			return nil, err
		}
		steps, err := run.Next(r)
		if err != nil {
			return nil, err
		}
		if len(r.Child) > 0 {
			continue
		}
		if string(r.Type) == schema.TypeCommandMessage {
			list = append(list, inputItem(req.Run, r.Seq, jsonscan.DecodeString(run.Field("role")), run.Field("content")))
		}
		for _, t := range steps {
			if t.Kind == assemble.MessageClose && t.Message.Role == "user" && t.Value != nil {
				list = append(list, inputItem(req.Run, r.Seq, "user", t.Value))
			}
		}
	}
	return list, nil
}

// inputItem is a message of a person as an item.
func inputItem(run string, seq schema.Seq, role string, content []byte) protocol.Item {
	if role != "system" {
		role = "user"
	}
	id := "msg_" + run + "_in_" + seq.String()
	o := jsonscan.Object("{").Str("id", id).Str("type", "message").Str("status", "completed").Str("role", role)
	o = append(o.Name("content"), '[')
	if jsonscan.IsString(content) {
		o = append(append(o, '{').Str("type", "input_text").Raw("text", content).End(), ']')
		return protocol.Item{ID: id, Data: o.End()}
	}
	n := 0
	for block := range jsonscan.Elements(content) {
		if n++; n > 1 {
			o = append(o, ',')
		}
		o = appendInput(append(o, '{'), block).End()
	}
	return protocol.Item{ID: id, Data: append(o, "]}"...)}
}

// appendInput writes a block as a part of an input.
func appendInput(o jsonscan.Object, block []byte) jsonscan.Object {
	f := jsonscan.Fields(nil).Read(block)
	source := jsonscan.Fields(nil).Read(f.Object("source"))
	url := source.Str("url")
	if data := source.Str("data"); data != "" {
		url = "data:" + source.Str("media_type") + ";base64," + data
	}
	switch {
	case f.Str("type") == "image" && url != "":
		return o.Str("type", "input_image").Str("detail", "auto").Str("image_url", url)
	case url != "":
		return o.Str("type", "input_file").Str("file_url", url).OptStr("filename", f.Str("title"))
	case f.Kind("text", '"') != nil:
		return o.Str("type", "input_text").Raw("text", f.Raw("text"))
	}
	return o.Str("type", "input_text").Str("text", string(bytes.TrimSpace(block)))
}
