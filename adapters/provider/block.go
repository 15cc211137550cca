package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Block is one content block. Set its fields, hand it to Message.Begin, then call Text and End.
type Block struct {
	Index int
	Kind  string // in events: text, reasoning, tool_use, or the provider's own name of it
	// Base are the block's members in the content of message.end, as they were when it began; the first
	// is "type". Begin makes those of a tool call that has none.
	Base Fields
	// Field is the member of Base that the text fills: "text", "thinking". "" for a tool call.
	Field string
	// Raw is in block.start as "block"; nil when other events have all that it holds.
	Raw json.RawMessage
	// Call and Tool make the block a tool call; CallKind is the provider's name of its kind, for
	// tool.start. Whoever begins it with an empty Call or Tool gets one made up.
	ToolUse              bool
	Call, Tool, CallKind string
	// FreeText reports that the call's input is free text and not JSON, as block.start does.
	FreeText bool
	// Input is the call's input where no text of it is emitted; nil is {}.
	Input json.RawMessage
	// Answers is the call whose result the block is, in block.start; "" for other blocks.
	Answers string
	// Late are members that came after the beginning (signature, citations, …): block.end has them, and
	// so does the content.
	Late Fields
	// Ending is called before block.end, to set Late, and Ended behind it and what follows from it. nil is nothing.
	Ending, Ended func()

	m      *Message
	text   []byte // inside of the JSON string, as far as it is kept
	size   int    // bytes of it
	final  []byte // inside of the text as the provider has it in the end; nil: the pieces joined
	held   []byte // input that came before the name of the call
	input  json.RawMessage
	closed bool

	waiting bool    // its beginning has not been emitted
	stopped bool    // the provider has ended it
	nest    nesting // of the input, up to scanned
	scanned int
	ended   bool // the input is an object that has its end
}

// TextBlock makes a block that a text fills. The kinds text and reasoning are named in the content as
// everywhere, text and thinking; any other has its own name there, and an audio_transcript its text in transcript.
func TextBlock(index int, kind string) *Block {
	typ, field := kind, kind
	switch kind {
	case "reasoning":
		typ, field = "thinking", "thinking"
	case "audio_transcript":
		field = "transcript"
	}
	return &Block{Index: index, Kind: kind, Field: field, Base: Fields{{"type", Quote(typ)}, {field, Quote("")}}}
}

// IsReserved reports whether a kind promises readers members of its own. What a provider calls so, and is not,
// needs another name.
func IsReserved(kind string) bool {
	return slices.Contains([]string{"", "text", "thinking", "reasoning", "tool_use", "data"}, kind)
}

// Begin emits block.start.
func (m *Message) Begin(b *Block) *Block {
	m.Announce(b)
	b.emitStart()
	return b
}

// Announce begins a block whose block.start is emitted with its first text, or before the next thing that is no delta:
// until then, what it is may change. A call that has no name waits for one until it has to end.
func (m *Message) Announce(b *Block) *Block {
	m.room()
	b.m, b.waiting = m, true
	m.Blocks = append(m.Blocks, b)
	m.w.pending = append(m.w.pending, b)
	return b
}

// emitStart emits what waits before the block and its own beginning. It goes on, also if the provider has ended it.
func (b *Block) emitStart() {
	stopped := b.stopped
	b.stopped = false
	b.m.w.settle()
	if b.waiting {
		b.start()
	}
	if stopped {
		b.Stop()
	}
}

// start emits block.start.
func (b *Block) start() {
	m := b.m
	b.waiting = false
	b.Kind = cmp.Or(ShortenID(b.Kind), "unknown")
	start := Fields{{"index", Number(b.Index)}, {"kind", Quote(b.Kind)}, {"message_id", Quote(m.ID)}}
	if b.ToolUse {
		b.nameCall()
		start = append(start, Field{"call_id", Quote(b.Call)}, Field{"tool", Quote(b.Tool)})
		if b.FreeText {
			start = append(start, Field{"free_text", Bool(true)})
		}
	} else if b.Answers != "" {
		start = append(start, Field{"call_id", Quote(b.Answers)})
	}
	if b.Raw != nil {
		start = append(start, Field{"block", b.Raw})
	}
	m.emit(schema.TypeBlockStart, start)
	for _, f := range b.Base {
		if f.Name != b.Field && f.Name != "input" {
			m.grow(len(f.Name) + len(f.Value))
		}
	}
	held := b.held
	b.held = nil
	b.Text(Enquote(held))
}

// nameCall settles what a call is called.
func (b *Block) nameCall() {
	b.Call = cmp.Or(ShortenID(b.Call), b.InventID())
	b.Tool = cmp.Or(ShortenID(b.Tool), "unnamed")
	b.CallKind = cmp.Or(b.CallKind, b.Kind)
	if b.Base == nil {
		input := json.RawMessage("{}")
		b.Base = Fields{{"type", Quote("tool_use")}, {"id", Quote(b.Call)}, {"name", Quote(b.Tool)}, {"input", input}}
	}
}

// InventID returns an id for a call that the provider has given none.
func (b *Block) InventID() string { return fmt.Sprintf("call_%s_%d", b.m.ID, b.Index) }

// release forgets a block that has ended, of which only the content of the message would have more.
func (b *Block) release() {
	if b.closed && b.m.full {
		b.text, b.final, b.input, b.Base, b.Raw, b.Late, b.Input = nil, nil, nil, nil, nil, nil, nil
	}
}

// Open reports whether the block has not ended.
func (b *Block) Open() bool { return !b.closed }

// IsStopped reports whether the provider has ended the block.
func (b *Block) IsStopped() bool { return b.stopped }

// maxDelta bounds the text of one delta event, in bytes as it is written.
const maxDelta = 256 << 10

// Len returns the length of the text so far, in bytes as it is written.
func (b *Block) Len() int { return b.size }

// Text emits a piece of text, thought or tool input, given as a JSON string, and keeps it for the end. Anything else
// emits nothing, and so do empty pieces. The input of a call waits for its name.
func (b *Block) Text(value json.RawMessage) {
	in := jsonscan.Inner(value)
	if len(in) == 0 {
		return
	}
	if b.waiting && b.ToolUse && b.Tool == "" && len(b.held) < maxInput {
		b.held = append(b.held, in...)
		return
	}
	if b.waiting {
		b.emitStart()
	}
	b.size += len(in)
	if !b.ToolUse && b.Field != "" {
		b.m.grow(len(in))
	}
	if b.ToolUse && b.size <= maxInput || !b.ToolUse && !b.m.full {
		b.text = append(b.text, in...)
	} else {
		b.text = nil
	}
	typ := schema.TypeTextDelta
	switch {
	case b.ToolUse:
		typ = schema.TypeToolInputDelta
	case b.Kind == "reasoning":
		typ = schema.TypeReasoningDelta
	}
	for _, part := range jsonscan.Split(in, maxDelta) {
		payload := Fields{{"text", Enquote(part)}, {"index", Number(b.Index)}}
		if b.ToolUse {
			payload = append(Fields{{"call_id", Quote(b.Call)}}, payload...)
		}
		b.m.emit(typ, payload)
	}
}

// Settle takes the whole text of the block, a JSON string, as providers repeat it at its end. What the
// pieces before left out is emitted now. false: the pieces differ, or have so much that it cannot
// be emitted any more; the caller keeps the whole then. The pieces stay as emitted, and the newest whole is the
// text of the block in the message's content, and the input of a call. An empty whole emits nothing.
func (b *Block) Settle(whole json.RawMessage) bool {
	in := jsonscan.Inner(whole)
	was := b.final
	b.final = nil
	switch {
	case b.Len() == 0:
		b.Text(whole)
	case len(b.text) < b.Len():
		return len(in) == b.Len() // the text is not kept any more
	case bytes.HasPrefix(in, b.text):
		b.Text(Enquote(in[len(b.text):]))
	case len(in) == 0:
		b.final = was
		return false
	case !bytes.Equal(jsonscan.Unescape(in), jsonscan.Unescape(b.text)):
		b.final = bytes.Clone(in)
		b.m.grow(len(in))
		return bytes.Equal(was, in)
	}
	return true
}

// wholeText returns the inside of the block's text: its pieces joined, unless the provider has sent another
// text in the end.
func (b *Block) wholeText() []byte {
	if b.final != nil {
		return b.final
	}
	return b.text
}

// Stop ends the block as far as the provider says so. That is believed when something else begins or comes, and until
// then the block goes on with every piece that is its. A call whose input began and is no whole object goes on longer.
func (b *Block) Stop() {
	if !b.closed && !b.stopped && !b.waiting {
		b.m.w.pending = append(b.m.w.pending, b)
	}
	b.stopped = true
}

// Whole reports whether the input of a call is an object that has its end: nothing can follow in it.
func (b *Block) Whole() bool {
	if b.ended || b.FreeText || b.scanned >= len(b.text) {
		return b.ended
	}
	for _, c := range jsonscan.Unescape(b.text[b.scanned:]) {
		b.ended = b.nest.feed(c) || b.ended
	}
	b.scanned = len(b.text)
	return b.ended
}

// End emits block.end, and tool.start of a call that is complete. finished is false when the provider
// did not end it. Ending again emits nothing.
func (b *Block) End(finished bool) {
	b.m.w.settle()
	if b.closed {
		return
	}
	if b.waiting {
		b.start()
	}
	if b.Ending != nil {
		b.Ending()
	}
	b.closed = true
	why := ""
	if !finished {
		why = "cut short"
	} else if b.ToolUse {
		why = b.finishInput()
	}
	end := Fields{{"index", Number(b.Index)}, {"message_id", Quote(b.m.ID)}, {"complete", Bool(why == "")}}
	if why != "" {
		end = append(end, Field{"problem", Quote(why)})
	}
	if b.ToolUse {
		end = append(end, Field{"call_id", Quote(b.Call)})
		if b.input != nil {
			end = append(end, Field{"input", b.input})
		}
	}
	b.m.emit(schema.TypeBlockEnd, append(end, b.Late...))
	if b.ToolUse && why == "" {
		b.m.w.emit(schema.TypeToolStart, Fields{
			{"call_id", Quote(b.Call)}, {"tool", Quote(b.Tool)}, {"input", b.input}, {"index", Number(b.Index)},
			{"kind", Quote(b.CallKind)},
		})
	}
	b.m.grow(len(b.input))
	for _, f := range b.Late {
		if b.Base.Get(f.Name) == nil {
			b.m.grow(len(f.Value))
		}
	}
	if b.Ended != nil {
		b.Ended()
	}
	b.release()
}

// finishInput decides what the input of a call is. Text counts more than what the block began with;
// no input at all is {}. It returns why there is none.
func (b *Block) finishInput() (why string) {
	if max(b.size, len(b.final)) > maxInput {
		return "longer than an input may be"
	}
	if b.FreeText {
		b.input = Enquote(b.wholeText())
		return ""
	}
	text := bytes.TrimSpace(jsonscan.Unescape(b.wholeText()))
	if len(text) == 0 {
		if b.input = b.Input; b.input == nil || IsNull(b.input) {
			b.input = json.RawMessage("{}")
		}
		return ""
	}
	if why = Problem(text); why != "" {
		return why
	}
	b.input = OneLine(text)
	return ""
}

// Content returns the block as it would stand in a message that was not streamed. A call whose input never
// became JSON carries what there is of it as partial_json.
func (b *Block) Content() json.RawMessage {
	out := append(Fields{}, b.Base...)
	switch {
	case b.ToolUse && b.input != nil:
		out = out.Set("input", b.input)
	case b.ToolUse:
		out = out.Set("partial_json", Enquote(b.wholeText()))
	case len(b.wholeText()) > 0 && b.Field != "":
		out = out.Set(b.Field, Enquote(b.wholeText()))
	case b.Late == nil && b.Raw != nil:
		return b.Raw
	}
	for _, f := range b.Late {
		out = out.Set(f.Name, f.Value)
	}
	return out.Encode()
}

// Result emits what a tool of the provider answered: tool.end of a call. output is its content, or the
// error when it failed.
func (w *Writer) Result(call string, failed bool, output json.RawMessage, kind string) {
	call = ShortenID(call)
	if call == "" {
		return // block.start has kept it whole
	}
	end := Fields{{"call_id", Quote(call)}, {"ok", Bool(!failed)}}
	if failed {
		end = append(end, FailureFields(schema.CodeToolFailed, output)...)
	} else {
		end = append(end, Field{"output", OrNull(output)})
	}
	w.Add(schema.TypeToolEnd, append(end, Field{"kind", Quote(strings.Clone(kind))}))
}
