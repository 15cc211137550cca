package openai

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// body is what is read of the body of a create. All of it but input goes to the agent as it is.
type body struct {
	Model        string            `json:"model"`
	Input        json.RawMessage   `json:"input"`
	Previous     string            `json:"previous_response_id"`
	Metadata     map[string]string `json:"metadata"`
	Background   bool              `json:"background"`
	Stream       bool              `json:"stream"`
	Store        *bool             `json:"store"`
	Conversation json.RawMessage   `json:"conversation"`
	Prompt       json.RawMessage   `json:"prompt"`
}

// inputMessage is an item of an input.
type inputMessage struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// inputPart is one of the content of a message.
type inputPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	ImageURL string `json:"image_url"`
	FileURL  string `json:"file_url"`
	FileData string `json:"file_data"`
	Filename string `json:"filename"`
}

func refuse(code, format string, args ...any) error {
	return dialect.RefuseAs(code, dialect.ErrBadRequest, format, args...)
}

// read reads the body of a create.
func read(raw []byte) (in body, rest map[string]json.RawMessage, err error) {
	wrong := new(json.UnmarshalTypeError)
	switch err = json.Unmarshal(raw, &in); {
	case errors.As(err, &wrong) && wrong.Field != "":
		return in, nil, refuse("invalid_type", "%s is no %s", wrong.Field, wrong.Type.Kind())
	case err != nil, json.Unmarshal(raw, &rest) != nil, rest == nil:
		return in, nil, refuse("invalid_json", "the body is not a JSON object")
	case in.Store != nil && !*in.Store:
		return in, nil, refuse("unsupported_parameter", "store is false: what is not stored cannot be taken up again")
	case isSet(in.Conversation), isSet(in.Prompt):
		return in, nil, refuse("unsupported_parameter", "send previous_response_id and input, no conversation and no prompt")
	case len(in.Metadata) > 16:
		return in, nil, refuse("invalid_value", "metadata has more than 16 members")
	}
	return in, rest, nil
}

func isSet(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }

// content is what a person says with an input, as the log has it: what comes after the last item that is not the
// user's. whole reports that there is nothing else in it.
func content(input json.RawMessage) (said any, whole bool, err error) {
	var text string
	if json.Unmarshal(input, &text) == nil && text != "" {
		return text, true, nil
	}
	var list []inputMessage
	if json.Unmarshal(input, &list) != nil || len(list) > dialect.MaxList {
		return nil, false, refuse("invalid_value", "input is neither a text nor a list of at most %d items", dialect.MaxList)
	}
	first := len(list)
	for first > 0 && list[first-1].Role == "user" && (list[first-1].Type == "" || list[first-1].Type == "message") {
		first--
	}
	var blocks []map[string]any
	for _, m := range list[first:] {
		more, err := m.blocks()
		if err != nil {
			return nil, false, err
		}
		blocks = append(blocks, more...)
	}
	switch {
	case len(blocks) == 0:
		return nil, false, refuse("invalid_value", "the input does not end with a message of the user")
	case len(blocks) == 1 && blocks[0]["type"] == "text":
		return blocks[0]["text"], first == 0, nil
	}
	return blocks, first == 0, nil
}

// blocks are the parts of a message, as the log has them.
func (m *inputMessage) blocks() (list []map[string]any, err error) {
	var text string
	if json.Unmarshal(m.Content, &text) == nil && text != "" {
		return []map[string]any{{"type": "text", "text": text}}, nil
	}
	var parts []inputPart
	if json.Unmarshal(m.Content, &parts) != nil {
		return nil, refuse("invalid_value", "content of a message is neither a text nor a list of parts")
	}
	for _, p := range parts {
		switch {
		case p.Type == "input_text" && p.Text != "":
			list = append(list, map[string]any{"type": "text", "text": p.Text})
		case p.Type == "input_image" && p.ImageURL != "":
			list = append(list, file("image", p.ImageURL, ""))
		case p.Type == "input_file" && p.FileURL+p.FileData != "":
			list = append(list, file("document", p.FileURL+p.FileData, p.Filename))
		default:
			return nil, refuse("invalid_value", "a part of a message is none of input_text, input_image with image_url, "+
				"input_file with file_url or file_data")
		}
	}
	return list, nil
}

// file is a block for a file.
func file(typ, url, name string) map[string]any {
	source := map[string]any{"type": "url", "url": url}
	if head, data, ok := strings.Cut(url, ";base64,"); ok && strings.HasPrefix(head, "data:") {
		source = map[string]any{"type": "base64", "media_type": head[len("data:"):], "data": data}
	}
	block := map[string]any{"type": typ, "source": source}
	if name != "" {
		block["title"] = name
	}
	return block
}

// store stores what a create says, once for its Idempotency-Key, and returns the request for the response that it
// begins.
func store(c *protocol.Call, raw []byte) (req dialect.Request, in body, err error) {
	in, rest, err := read(raw)
	if err != nil {
		return req, in, err
	}
	said, whole, err := content(in.Input)
	if err != nil {
		return req, in, err
	}
	if whole || in.Previous != "" {
		delete(rest, "input") // the log has it
	}
	opt, err := c.AppendOptions()
	if err != nil {
		return req, in, err
	}
	id := c.NewKeyedRun("msg_", "openai message", opt)
	payload, err := json.Marshal(map[string]any{"content": said, "message_id": id, "openai": rest})
	if err != nil {
		return req, in, err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	event := schema.Event{Type: schema.TypeCommandMessage, Payload: c.By(payload)}
	if in.Previous == "" {
		req, err = first(ctx, c, opt, in, event)
	} else {
		req, err = next(ctx, c, in.Previous, event)
	}
	return req, in, err
}

// first begins a run with a message.
func first(ctx context.Context, c *protocol.Call, opt producers.AppendOptions, in body, said schema.Event) (
	req dialect.Request, err error) {
	created, err := json.Marshal(map[string]any{"agent": in.Model, "metadata": in.Metadata})
	if err != nil {
		return req, err
	}
	req = dialect.Request{Run: c.NewKeyedRun("run_", "openai", opt), Span: "1"}
	opt.MustBeNew, opt.Whole = true, true
	_, err = c.Append(ctx, req.Run, []schema.Event{{Type: schema.TypeSessionCreated, Payload: created}, said}, opt)
	return req, err
}

// next goes on after a response, which must be the newest one of its run.
func next(ctx context.Context, c *protocol.Call, previous string, said schema.Event) (req dialect.Request, err error) {
	req, err = request(previous)
	if err != nil {
		return req, refuse("previous_response_not_found", "previous_response_id is the id of no response")
	}
	n, _ := strconv.Atoi(req.Span)
	change := protocol.Change[*projector]{Request: dialect.Request{Run: req.Run}, Keyed: true}
	change.Events = []schema.Event{said}
	change.Allow = func(p *projector) error {
		switch {
		case n > p.now.n:
			return fanout.ErrNotFound
		case n < p.now.n:
			return refuse("previous_response_not_newest", "previous_response_id is not the newest of its run")
		case p.now.open:
			return refuse("previous_response_in_progress", "the previous response has not ended")
		}
		return nil
	}
	at, err := change.Store(ctx, c)
	if errors.Is(err, fanout.ErrNotFound) {
		err = refuse("previous_response_not_found", "previous_response_id is the id of no response")
	}
	if err != nil {
		return req, err
	}
	p, err := protocol.StateAt[*projector](ctx, c, at.Last, change.Request)
	if err == nil {
		req.Span = strconv.Itoa(p.now.n)
	}
	return req, err
}

// beginResponse stores what a create holds, and returns the response to stream.
func beginResponse(c *protocol.Call, in dialect.Input) (dialect.Request, error) {
	req, _, err := store(c, in.Body)
	req.Stream = streamCreate
	return req, err
}

// create answers with the response: at once when it is made in the background, else when it has ended, or when the node
// goes away.
func create(c *protocol.Call) error {
	raw, err := c.Body(mediaType)
	if err != nil {
		return err
	}
	req, in, err := store(c, raw)
	if err != nil {
		return err
	}
	for {
		last, p, err := look(c, req)
		if err != nil {
			return err
		}
		if in.Background || !p.now.open || p.now.n != p.nth {
			return reply(c, p)
		}
		if _, err := c.Wait(c.Context(), req.Run, last); err != nil {
			if c.Context().Err() != nil {
				return err
			}
			return reply(c, p) // it goes on elsewhere, and its id says where
		}
	}
}

// look returns the newest record of a run, and its projector as it is then, or was when the response ended.
func look(c *protocol.Call, req dialect.Request) (schema.Seq, *projector, error) {
	ctx, cancel := c.LogContext()
	defer cancel()
	return find(ctx, c, req)
}
