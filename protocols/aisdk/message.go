package aisdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/protocols/chat"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// maxMessages bounds the messages of one answer, in bytes.
const maxMessages = 16 << 20

// fields are those of a chunk, or of a part of a message, as they are written.
type fields map[string]json.RawMessage

func (f fields) text(name string) string { return jsonscan.DecodeString(f[name]) }

// ui is a message as a page has it.
type ui struct {
	ID       string   `json:"id"`
	Role     string   `json:"role"`
	Metadata fields   `json:"metadata,omitempty"`
	Parts    []fields `json:"parts"`

	known map[string]fields // parts by what later chunks call them
}

// part returns the part that chunks call by a name, which is added with a type if it is new.
func (m *ui) part(name, typ string) fields {
	if p := m.known[name]; p != nil {
		return p
	}
	p := fields{"type": quote(typ)}
	m.Parts, m.known[name] = append(m.Parts, p), p
	return p
}

// quote returns a JSON string.
func quote(s string) json.RawMessage { return jsonscan.AppendString(nil, s) }

// messages answers with the messages of a run, made of its chunks as a client makes them, for a page that begins with
// them.
func messages(ctx context.Context, c *protocol.Call) error {
	head, err := c.Head(ctx, c.Path("run"))
	if err != nil {
		return err
	}
	list, err := read(ctx, c, 0, head.Last)
	if gone := new(fanout.ExpiredError); errors.As(err, &gone) && gone.First > 1 { // what is kept
		list, err = read(ctx, c, gone.First-1, head.Last)
	}
	if err != nil {
		return err
	}
	return c.ReplyJSON(list)
}

// read returns the messages of a run's records.
func read(ctx context.Context, c *protocol.Call, after, through schema.Seq) ([]*ui, error) {
	list, size := []*ui{}, 0
	run := c.Path("run")
	p := Dialect{}.Projector(dialect.Request{Run: run, Form: formAll}).(*projector)
	var frames dialect.Frames
	for r, err := range c.Records(ctx, run, after, through) {
		if err != nil {
			return nil, err
		}
		frames.Reset()
		if err := p.Project(&frames, r); err != nil {
			return nil, err
		}
		if m := personMessage(run, r); m != nil {
			list, size = append(list, m), size+len(r.Line)
		}
		for _, f := range frames.List {
			list, size = add(list, bytes.Clone(f.Data)), size+len(f.Data)
		}
		if size > maxMessages {
			return nil, schema.ErrTooLarge
		}
	}
	for _, m := range list {
		for _, part := range m.Parts {
			q, ok := p.chat.Questions.Get(jsonscan.DecodeString(schema.Field(part["approval"], "id")))
			if ok && q.Answered {
				if part.text("state") == "approval-requested" {
					part["state"] = quote("approval-responded")
				}
				open := jsonscan.Object(bytes.TrimSuffix(part["approval"], []byte("}")))
				part["approval"] = json.RawMessage(open.Bool("approved", q.Approved).End())
			}
		}
	}
	return list, nil
}

// personMessage returns what a person says with a record; nil for any other.
func personMessage(run string, r schema.Record) *ui {
	id, parts, ok := chat.MessageOf(r)
	if !ok {
		return nil
	}
	m := &ui{ID: id, Role: "user"}
	if id == "" {
		m.ID = messageID(run, r.Seq) + "-user"
	}
	for _, p := range parts {
		part := fields{"type": quote("text"), "text": quote(p.Text)}
		if p.URL != "" {
			part = fields{"type": quote("file"), "url": quote(p.URL), "mediaType": quote(p.Media)}
		}
		m.Parts = append(m.Parts, part)
	}
	return m
}

// states are those of a call after each chunk.
var states = map[string]string{
	"tool-input-start": "input-streaming", "tool-input-available": "input-available", "tool-input-error": "output-error",
	"tool-approval-request": "approval-requested", "tool-output-available": "output-available",
	"tool-output-error": "output-error", "tool-output-denied": "output-denied",
}

// add does with a chunk what a client does, but for an input in pieces.
func add(list []*ui, chunk []byte) []*ui {
	f := fields{}
	if json.Unmarshal(chunk, &f) != nil { // [DONE]
		return list
	}
	typ := f.text("type")
	if typ == "start" {
		return append(list, &ui{ID: f.text("messageId"), Role: "assistant", known: map[string]fields{}})
	}
	m := list[len(list)-1]
	for i := len(list) - 2; i >= 0 && m.Role == "user"; i-- { // who has asked meanwhile
		m = list[i]
	}
	kind, what, _ := strings.Cut(typ, "-")
	switch {
	case typ == "start-step":
		m.Parts = append(m.Parts, fields{"type": quote("step-start")})
	case typ == "file":
		m.Parts = append(m.Parts, f)
	case typ == "message-metadata":
		_ = json.Unmarshal(f["messageMetadata"], &m.Metadata) // it is an object
	case kind == "text" || kind == "reasoning":
		p := m.part(kind+f.text("id"), kind)
		switch what {
		case "start":
			p["text"], p["state"] = json.RawMessage(`""`), quote("streaming")
		case "delta":
			p["text"] = append(append(p["text"][:len(p["text"])-1], jsonscan.Inner(f["delta"])...), '"')
		case "end":
			p["state"] = quote("done")
			copyFields(p, f, "providerMetadata")
		}
	case states[typ] != "":
		p := m.part("call "+f.text("toolCallId"), "dynamic-tool")
		p["state"] = quote(states[typ])
		copyFields(p, f, "toolCallId", "toolName", "input", "output", "errorText", "providerExecuted")
		if id := f["approvalId"]; id != nil {
			p["approval"] = json.RawMessage(jsonscan.Object("{").Raw("id", id).End())
		}
	case kind == "data" && f["transient"] == nil:
		p := m.part(typ+" "+f.text("id"), typ)
		copyFields(p, f, "id", "data")
	}
	return list
}

func copyFields(to, from fields, names ...string) {
	for _, name := range names {
		if v := from[name]; v != nil {
			to[name] = v
		}
	}
}
