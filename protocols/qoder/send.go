package qoder

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Command translates an event that a client sends (user.message, user.interrupt, …) into what is appended to the
// log, for a session as it stands at the newest record. The error wraps dialect.ErrBadRequest, and is in words for
// the client; where one field is to blame it is a ParamError.
//
// What the event brings beyond its own fields is kept and shown again, except what all events have.
func (p *Projector) Command(sent json.RawMessage) (schema.Event, error) {
	fields, err := readBody(sent)
	if err != nil {
		return schema.Event{}, dialect.Refuse(dialect.ErrBadRequest,
			"event must be a JSON object, no field of which stands twice")
	}
	e := schema.Event{Actor: "user"}
	switch typ := text(sent, "type"); typ {
	case sentMessage, sentSystem:
		err = p.sendMessage(&e, typ, fields)
	case sentInterrupt:
		err = p.sendInterrupt(&e, fields)
	case sentConfirmation, sentCustomResult, sentResult:
		err = p.sendAnswer(&e, typ, fields)
	case sentOutcome:
		err = p.sendOutcome(&e, fields)
	default:
		err = refuse("type", "must be one of %s", strings.Join([]string{
			sentMessage, sentSystem, sentInterrupt, sentConfirmation, sentCustomResult, sentResult, sentOutcome,
		}, ", "))
	}
	return e, err
}

// NoteSent notes that an event which Command returned will follow, before the next one of the same request is
// asked of Command: what is answered in a request is not answered in it again.
func (p *Projector) NoteSent(e schema.Event) {
	if e.Type != typeAnswer {
		return
	}
	id := field(e.Payload, "request_id")
	c := p.tools.callOfRequest(id)
	if c == nil {
		c = p.tools.call(callKey(e.ChildID, id))
	}
	if c != nil {
		p.tools.settle(c, text(field(e.Payload, "answer"), "type") != sentConfirmation)
	}
}

// lane makes an event one of the thread that it names; of the coordinator when it names none.
func (p *Projector) lane(e *schema.Event, fields map[string][]byte) error {
	const name = "session_thread_id"
	v := fields[name]
	if isNull(v) {
		return nil
	}
	id, ok := jsonscan.Unquote(v)
	if !ok {
		return refuse(name, "must be the id of a thread")
	}
	child, ok := p.Lane(id)
	if !ok {
		return refuse(name, "is no thread of this session")
	}
	if child != "" && p.threads.lanes.m[child].archived != "" {
		return refuse(name, "is a thread that is archived")
	}
	e.ChildID = child
	return nil
}

func (p *Projector) sendMessage(e *schema.Event, typ string, fields map[string][]byte) error {
	if err := checkContent("content", fields["content"], typ == sentSystem); err != nil {
		return err
	}
	if v := fields["message_id"]; v != nil && !isString(v) {
		return refuse("message_id", "must be a string")
	}
	if err := p.lane(e, fields); err != nil {
		return err
	}
	b := append([]byte(`{"content":`), fields["content"]...)
	if typ == sentSystem {
		b = append(b, `,"role":"system"`...)
	}
	e.Type = schema.TypeCommandMessage
	e.Payload = oneLine(append(appendFields(b, fields, "content", "role"), '}'))
	return nil
}

func (p *Projector) sendInterrupt(e *schema.Event, fields map[string][]byte) error {
	if v := fields["reason"]; !isNull(v) && !isString(v) {
		return refuse("reason", "must be a string")
	}
	if err := p.lane(e, fields); err != nil {
		return err
	}
	e.Type = typeCancel
	e.Payload = oneLine(append(appendFields([]byte(`{"interrupt":true`), fields, "interrupt", "instruction", "plan_id"),
		'}'))
	return nil
}

// sendOutcome makes an outcome to reach a new instruction, which is what agents of the log know.
func (p *Projector) sendOutcome(e *schema.Event, fields map[string][]byte) error {
	if v := fields["description"]; !isString(v) || len(v) == 2 {
		return refuse("description", "must be a string that is not empty")
	}
	if v := fields["rubric"]; !isNull(v) && v[0] != '{' {
		return refuse("rubric", "must be an object")
	}
	if v := fields["max_iterations"]; !isNull(v) && whole(v) < 1 {
		return refuse("max_iterations", "must be a whole number from 1 on")
	}
	b := append([]byte(`{"instruction":`), fields["description"]...)
	b = append(append(b, `,"event":{"type":"`...), sentOutcome...)
	e.Type = typeRedirect
	e.Payload = oneLine(append(appendFields(append(b, '"'), fields), `}}`...))
	return nil
}

// sendAnswer answers what waits, or is open: a tool use or a request for input, by its event id.
func (p *Projector) sendAnswer(e *schema.Event, typ string, fields map[string][]byte) error {
	name := "tool_use_id"
	if typ == sentCustomResult {
		name = "custom_tool_use_id"
	}
	id, ok := jsonscan.Unquote(fields[name])
	if !ok {
		return refuse(name, "must be the id of an event")
	}
	c := p.tools.byID(id)
	custom := c != nil && (c.kind == callCustom || c.kind == callRequest)
	switch {
	case c == nil || len(c.request) == 0:
		return refuse(name, "is no tool use of this session that waits or is open%s", p.waitingIDs())
	case c.answered:
		return refuse(name, "has its result already%s", p.waitingIDs())
	case typ == sentConfirmation && !p.tools.isHeld(c.key) && bytes.Equal(c.settled, c.request):
		return refuse(name, "was allowed or denied already%s", p.waitingIDs())
	case typ == sentCustomResult && !custom && !p.tools.isHeld(c.key):
		return refuse(name, "is not the use of a custom tool")
	case typ != sentCustomResult && custom:
		return refuse(name, "is the use of a custom tool: send %s", sentCustomResult)
	}
	var extra string
	var err error
	if typ == sentConfirmation {
		extra, err = checkVerdict(fields)
	} else {
		err = checkResult(fields)
	}
	if err != nil {
		return err
	}
	e.ChildID, e.Type = c.child, typeAnswer
	b := append(append([]byte(`{"request_id":`), c.request...), `,"answer":{"type":"`...)
	b = append(append(append(b, typ...), '"'), extra...)
	e.Payload = oneLine(append(appendFields(b, fields), `}}`...))
	return nil
}

// checkVerdict takes result, and decision of older clients, for which extra says the result.
func checkVerdict(fields map[string][]byte) (extra string, err error) {
	if v := fields["deny_message"]; !isNull(v) && !isString(v) {
		return "", refuse("deny_message", "must be a string")
	}
	result, decision := fields["result"], fields["decision"]
	switch {
	case result != nil:
		if s := string(result); s != `"allow"` && s != `"deny"` {
			return "", refuse("result", `must be "allow" or "deny"`)
		}
		return "", nil
	case string(decision) == `"approve"` || string(decision) == `"allow"`:
		return `,"result":"allow"`, nil
	case string(decision) == `"deny"`:
		return `,"result":"deny"`, nil
	case decision != nil:
		return "", refuse("decision", `must be "approve" or "deny"`)
	}
	return "", refuse("result", `is required: "allow" or "deny"`)
}

func checkResult(fields map[string][]byte) error {
	if v := fields["is_error"]; !isNull(v) && string(v) != "true" && string(v) != "false" {
		return refuse("is_error", "must be true or false")
	}
	if v := fields["content"]; !isNull(v) && string(v) != "[]" {
		return checkContent("content", v, false)
	}
	return nil
}

// checkContent takes a string, or blocks: of text alone where nothing else may stand.
func checkContent(param string, v []byte, textOnly bool) error {
	switch {
	case isString(v):
		return nil
	case isNull(v) || v[0] != '[':
		return refuse(param, "must be a string or a list of blocks")
	case countElements(v) == 0:
		return refuse(param, "must have a block")
	}
	return eachElement(param, v, func(param string, v []byte) error {
		if v[0] != '{' {
			return refuse(param, "must be an object")
		}
		typ := text(v, "type")
		switch {
		case typ == "":
			return refuse(param+".type", "must be a string")
		case typ == "text" && !isString(field(v, "text")):
			return refuse(param+".text", "must be a string")
		case textOnly && typ != "text":
			return refuse(param+".type", `must be "text"`)
		case (typ == "image" || typ == "document") && !isObject(field(v, "source")):
			return refuse(param+".source", "must be an object")
		}
		return nil
	})
}

func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' }

func countElements(v []byte) (n int) {
	for range jsonscan.Elements(v) {
		n++
	}
	return n
}

// appendFields appends fields of an event that was sent, each with a comma before it, in one order: that of their
// names. Those that all events have are left out, and those named.
func appendFields(b []byte, fields map[string][]byte, without ...string) []byte {
	names := make([]string, 0, len(fields))
	for name := range fields {
		if !slices.Contains(common, name) && !slices.Contains(without, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		b = append(append(appendString(append(b, ','), name), ':'), fields[name]...)
	}
	return b
}

// oneLine returns JSON without line breaks, which stand between its tokens alone.
func oneLine(b []byte) json.RawMessage {
	if bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0 || !utf8.Valid(b) {
		return b
	}
	var line bytes.Buffer
	if err := json.Compact(&line, b); err != nil {
		return b
	}
	return line.Bytes()
}
