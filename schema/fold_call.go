package schema

import (
	"bytes"

	"agentstream/schema/jsonscan"
)

// FoldCall is one tool call. An id that comes again behind its end is another call, unless it is the same start once more.
type FoldCall struct {
	ID         string
	Child      string
	Tool       string
	Input      []byte
	Done       bool
	OK         bool
	Output     []byte
	Error      []byte
	Duration   []byte   // duration_ms as it came
	Blob       string   // blob_ref
	Stream     JSONText // tool.output.delta
	Start, End Seq
}

// tool takes what becomes of a call. Its first start and its first end count. One whose start is missing has its name from the
// message that asked for it, and what its start says when that comes late.
func (f *Fold) tool(ev *foldEvent, p jsonscan.Fields) {
	id := p.Str("call_id")
	c := ev.lane.calls[id]
	if ev.typ == TypeToolStart {
		f.startCall(ev, c, id, p)
		return
	}
	if c == nil {
		c = f.addCall(ev, id)
		if b := ev.lane.asked[id]; b != nil {
			c.Tool, c.Input = f.word(b.Tool), f.keep(b.Input)
		}
	}
	switch {
	case ev.typ == TypeToolOutputDelta:
		text := p.Inner("text")
		c.Stream.inner = append(c.Stream.inner, text...)
		f.size += len(text)
	case !c.Done:
		c.Done, c.OK, c.End = true, p.Yes("ok"), ev.seq
		c.Output, c.Error = f.keep(p.Raw("output")), f.keep(toolError(p))
		c.Duration, c.Blob = f.keep(p.Number("duration_ms")), f.word(p.Str("blob_ref"))
	}
}

// startCall takes the start of a call of which c is the newest with its id.
func (f *Fold) startCall(ev *foldEvent, c *FoldCall, id string, p jsonscan.Fields) {
	if m := ev.lane.open; m != nil && m.implicit {
		m.closeBlocks()
	}
	tool, input := p.Str("tool"), p.Some("input")
	switch {
	case c == nil:
		c = f.addCall(ev, id)
	case c.Tool == "" && c.Input == nil: // it is known by its output, or its end
	case c.Tool == tool && bytes.Equal(c.Input, input) && (!c.Done || ev.lane.said <= c.Start): // nobody has asked for it again
		return
	default:
		c = f.addCall(ev, id)
	}
	c.Tool, c.Input = f.word(tool), f.keep(input)
}

// addCall adds a call, which is the newest of its id from then on.
func (f *Fold) addCall(ev *foldEvent, id string) *FoldCall {
	l := ev.lane
	if l.calls == nil {
		l.calls = make(map[string]*FoldCall)
	}
	c := &FoldCall{ID: id, Child: l.id(), Start: ev.first}
	f.size += otherCost + len(c.ID) + len(c.Child)
	l.calls[id] = c
	f.Calls = append(f.Calls, c)
	return c
}

// toolError returns what is known of a call's error: the detail, or else the code, which was an object once.
func toolError(p jsonscan.Fields) []byte {
	if detail := p.Some("error_detail"); detail != nil {
		return detail
	}
	return p.Some("error")
}
