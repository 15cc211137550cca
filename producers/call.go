package producers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentstream/schema"
	"agentstream/schema/assemble"
)

// Call is one call of a tool: its input while the model streams it, its output while the tool runs.
type Call struct {
	turn  *Turn
	msg   *Message        // nil when an adapter announced the call
	block *assemble.Block // the same
	id    string
	tool  string
	input json.RawMessage
	inner []byte // of the string that the pieces of the input make
	cut   int    // bytes of it when it was too much
	began time.Time

	inRest, outRest partRune
}

// Call begins a tool call in the message: Input streams its input, and Ready makes it a call. An
// empty id is made up.
func (m *Message) Call(id, tool string) (*Call, error) {
	r := m.turn.lane.run
	if id == "" {
		id = r.cfg.NewID("call")
	}
	if err := shortNames(id, tool); err != nil || tool == "" {
		return nil, fmt.Errorf("producers: run %s: call of tool %q: %w", r.cfg.RunID, shorten(tool, maxName),
			cmp.Or(err, schema.ErrMalformed))
	}
	if err := m.turn.enter("call a tool in message", m.id); err != nil {
		return nil, err
	}
	defer r.leave()
	if err := m.alive("call a tool in"); err != nil {
		return nil, err
	}
	if err := m.endOpen(); err != nil {
		return nil, err
	}
	b, err := m.openBlock("tool_use", object(nil).text("call_id", id).text("tool", tool))
	if err != nil {
		return nil, err
	}
	return &Call{turn: m.turn, msg: m, block: b, id: id, tool: tool}, nil
}

// ID returns the call's id.
func (c *Call) ID() string { return c.id }

// Tool returns the tool's name.
func (c *Call) Tool() string { return c.tool }

// Args returns the call's input, once it is complete.
func (c *Call) Args() json.RawMessage { return c.input }

// Input emits a piece of the input, which is JSON when it is whole. A piece may end within a character, as in
// Message.Text.
func (c *Call) Input(piece string) error {
	if err := c.turn.enter("go on with call", c.id); err != nil {
		return err
	}
	defer c.turn.lane.run.leave()
	if err := c.writable(); err != nil {
		return err
	}
	return c.inRest.join(piece, c.emitInput)
}

// emitInput emits a piece of the input and keeps it for the whole. Called with the run's lock held.
func (c *Call) emitInput(piece string) error {
	if err := c.msg.delta(c.block, schema.TypeToolInputDelta, piece); err != nil {
		return err
	}
	from := len(c.inner)
	if c.cut == 0 {
		c.inner = appendEscaped(c.inner, piece)
	}
	if n := len(c.inner) - from; c.cut > 0 || len(c.inner) > maxKept || c.msg.inputs+n > maxBegun {
		c.cut += len(c.inner) + len(piece)
		c.msg.inputs -= from
		c.inner = nil
	} else {
		c.msg.inputs += n
	}
	return nil
}

func (c *Call) writable() error {
	r := c.turn.lane.run
	if c.msg == nil || c.block.Ended {
		return fmt.Errorf("producers: run %s: call %s: its input: %w", r.cfg.RunID, c.id, ErrOver)
	}
	return c.msg.alive("say the input of call " + c.id + " in")
}

// Ready ends the input: block.end and tool.start. input is the whole where no pieces were streamed, or nil.
func (c *Call) Ready(input any) error { return c.ReadyAs(input, "") }

// ReadyAs is Ready for a call that is not simply allowed: permission is ask (somebody must confirm it first) or
// deny, and stands in tool.start; "" leaves it out.
func (c *Call) ReadyAs(input any, permission string) error {
	whole, err := jsonOf(input)
	if err != nil {
		return fmt.Errorf("producers: call %s: input: %w", c.id, err)
	}
	if err := c.turn.enter("go on with call", c.id); err != nil {
		return err
	}
	defer c.turn.lane.run.leave()
	if err := c.writable(); err != nil {
		return err
	}
	if err := c.inRest.flush(c.emitInput); err != nil {
		return err
	}
	r := c.turn.lane.run
	if whole == nil {
		if whole, err = c.joinPieces(); err != nil {
			return fmt.Errorf("producers: run %s: call %s: %w", r.cfg.RunID, c.id, err)
		}
	}
	end := object(nil).text("call_id", c.id).raw("input", whole)
	start := c.turn.lane.event(schema.TypeToolStart,
		object(nil).text("call_id", c.id).text("tool", c.tool).raw("input", whole).
			integer("index", c.block.Index).str("permission", permission).close())
	if n := start.Size() + len(c.msg.id) + nameRoom; n > schema.MaxEventBytes { // before half of it is emitted
		return fmt.Errorf("producers: run %s: call %s: input of %d bytes: %w", r.cfg.RunID, c.id, len(whole),
			schema.ErrTooLarge)
	}
	if err := c.msg.endBlock(c.block, end); err != nil {
		return err
	}
	c.msg.inputs -= len(c.inner)
	c.inner = nil
	c.input, c.began = whole, r.cfg.Now()
	return c.turn.emit(schema.TypeToolStart, start.Payload)
}

// nameRoom is what names take of an event beside its payload, at most.
const nameRoom = 4 << 10

// joinPieces returns the input that the streamed pieces make; {} when there were none.
func (c *Call) joinPieces() (json.RawMessage, error) {
	if c.cut > 0 {
		return nil, fmt.Errorf("an input of %d bytes or more: %w", c.cut, schema.ErrTooLarge)
	}
	if len(c.inner) == 0 {
		return json.RawMessage("{}"), nil
	}
	var text string
	if err := json.Unmarshal(append(append([]byte{'"'}, c.inner...), '"'), &text); err != nil {
		return nil, fmt.Errorf("pieces of input: %w", err)
	}
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("the pieces of its input are not JSON: %w", schema.ErrMalformed)
	}
	return json.RawMessage(text), nil
}

// Run records that the tool begins to work: tool.run. Between Ready and Run the call waits, for a person or for its
// turn. ErrOver: it is not ready, or has ended.
func (c *Call) Run() error {
	if err := c.turn.enter("go on with call", c.id); err != nil {
		return err
	}
	defer c.turn.lane.run.leave()
	if err := c.checkRunning("run"); err != nil {
		return err
	}
	return c.turn.emit(schema.TypeToolRun, object(nil).text("call_id", c.id).close())
}

// Output emits a piece of what a running tool prints. A piece may end within a character, as in Message.Text. ErrOver:
// it does not run, or not any more.
func (c *Call) Output(text string) error {
	if err := c.turn.enter("go on with call", c.id); err != nil {
		return err
	}
	defer c.turn.lane.run.leave()
	if err := c.checkRunning("print in"); err != nil {
		return err
	}
	return c.outRest.join(text, c.emitOutput)
}

// emitOutput emits a text in as many pieces as it takes. Called with the run's lock held.
func (c *Call) emitOutput(text string) error {
	for {
		n := pieceOf(text)
		if err := c.turn.emit(schema.TypeToolOutputDelta,
			object(nil).text("call_id", c.id).text("text", text[:n]).close()); err != nil {
			return err
		}
		if text = text[n:]; text == "" {
			return nil
		}
	}
}

// checkRunning returns an error unless the tool runs. Called with the run's lock held.
func (c *Call) checkRunning(doing string) error {
	r := c.turn.lane.run
	if c.turn.over || r.open.lane(c.turn.lane.id).Item(assemble.CallStart, c.id) == nil {
		return fmt.Errorf("producers: run %s: %s call %s: %w", r.cfg.RunID, doing, c.id, ErrOver)
	}
	return nil
}

// Finish ends the call well: tool.end with its output, which encoding/json takes.
func (c *Call) Finish(output any) error {
	v, err := jsonOf(output)
	if err != nil {
		return fmt.Errorf("producers: call %s: output: %w", c.id, err)
	}
	return c.emitEnd(object(nil).text("call_id", c.id).yes("ok", true).raw("output", v))
}

// ToolError is an error with the code of tool.end.
type ToolError struct {
	Code string // KAI-TOOL-…
	Err  error
}

// Error returns the text of Err.
func (e *ToolError) Error() string { return errorText(e.Err) }

// Unwrap returns Err.
func (e *ToolError) Unwrap() error { return e.Err }

// Fail ends the call with the tool's error: tool.end with ok false, the code of a *ToolError or else
// schema.CodeToolFailed, and the error's text in its detail.
func (c *Call) Fail(cause error) error {
	code := schema.CodeToolFailed
	if e := (*ToolError)(nil); errors.As(cause, &e) && e.Code != "" {
		code = shorten(e.Code, maxName)
	}
	return c.emitEnd(object(nil).text("call_id", c.id).yes("ok", false).text("error", code).raw("error_detail",
		errorOf(cause)))
}

// emitEnd emits tool.end with the members of o.
func (c *Call) emitEnd(o object) error {
	if err := c.turn.enter("go on with call", c.id); err != nil {
		return err
	}
	defer c.turn.lane.run.leave()
	if err := c.checkRunning("end"); err != nil {
		return err
	}
	if err := c.outRest.flush(c.emitOutput); err != nil {
		return err
	}
	return c.turn.emit(schema.TypeToolEnd, o.integer("duration_ms", c.turn.since(c.began)).close())
}
