package aisdk

import (
	"encoding/json"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/chat"
	"agentstream/schema"
)

// post is what is read of the body of a POST.
type post struct {
	ID       string    `json:"id"`
	Messages []message `json:"messages"`
	Trigger  string    `json:"trigger"`
	Again    string    `json:"messageId"`
}

// message is what is believed of a message of the page.
type message struct {
	ID    string `json:"id"`
	Role  string `json:"role"`
	Parts []struct {
		Type      string `json:"type"`
		Text      string `json:"text"`
		URL       string `json:"url"`
		MediaType string `json:"mediaType"`
		Filename  string `json:"filename"`
		State     string `json:"state"`
		Approval  *struct {
			ID       string `json:"id"`
			Approved bool   `json:"approved"`
			Reason   string `json:"reason"`
		} `json:"approval"`
	} `json:"parts"`
}

// beginResponse writes what is new of a POST, and returns the response to stream: that to the last message of
// the user, or that which goes on when approvals are given. What the log has already is streamed again.
func beginResponse(c *protocol.Call, input dialect.Input) (req dialect.Request, err error) {
	var in post
	if json.Unmarshal(input.Body, &in) != nil || len(in.Messages) == 0 {
		return req, dialect.Refuse(dialect.ErrBadRequest,
			"the body is not a chat transport's: an object with id and messages")
	}
	if in.ID == "" {
		in.ID = c.NewRun("chat_")
	}
	last := &in.Messages[len(in.Messages)-1]
	if in.Trigger == "regenerate-message" {
		last.ID += "~" + in.Again // it is asked once more, and once for each answer that is not wanted
	}
	if err := schema.ValidRunID(in.ID); err != nil {
		return req, err
	}
	c.Header().Set(headerRun, in.ID)
	switch last.Role {
	case "user":
		req, err = say(c, in.ID, last)
	case "assistant":
		req, err = decide(c, in.ID, last)
	default:
		err = dialect.Refuse(dialect.ErrBadRequest, "the last message is neither the user's nor one with approvals")
	}
	req.Stream = streamChat
	return req, err
}

func say(c *protocol.Call, run string, m *message) (req dialect.Request, err error) {
	var parts []chat.Part
	for _, p := range m.Parts {
		switch p.Type {
		case "text":
			parts = append(parts, chat.Part{Text: p.Text})
		case "file":
			parts = append(parts, chat.Part{URL: p.URL, Media: p.MediaType, Name: p.Filename})
		}
	}
	payload, err := chat.Payload(m.ID, parts)
	if err != nil {
		return req, err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	first, p, err := chat.Say[*projector](ctx, c, run, m.ID, payload)
	if err != nil {
		return req, err
	}
	return request(run, first, p), nil
}

func decide(c *protocol.Call, run string, m *message) (req dialect.Request, err error) {
	var list []chat.Decision
	for _, p := range m.Parts {
		if a := p.Approval; a != nil && p.State == "approval-responded" {
			list = append(list, chat.Decision{ID: a.ID, Approved: a.Approved, Why: a.Reason})
		}
	}
	if len(list) == 0 || len(list) > dialect.MaxList {
		return req, dialect.Refuse(dialect.ErrBadRequest, "the last message, an assistant's, gives no approvals, or too many")
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	own := func(q chat.Question) bool { return messageID(run, q.Response) == m.ID }
	last, p, err := chat.Decide[*projector](ctx, c, run, list, own)
	if err != nil {
		return req, err
	}
	req = request(run, last.Response, p)
	req.Cursor.Seq = last.Seq // the page has what comes before
	return req, nil
}
