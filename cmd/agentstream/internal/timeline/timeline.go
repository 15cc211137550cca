package timeline

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"agentstream/adapters/proxy"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// timeline shows a run to a person: a paragraph per message, call and change of state, deltas flowing in as they
// come, children in a colour and indent of their own. Text from outside cannot act on the terminal.
// It is a view, not a record: long inputs and outputs are shortened (tail --json has them whole).
type timeline struct {
	pen   *terminalWriter
	zero  time.Time // time of the first event; offsets are against it
	seen  bool
	lanes map[string]*laneStyle
	calls map[string]*startedCall
	flow  flow   // of the open paragraph
	spoke string // child of the last paragraph
	// complaint is the last error that was shown: others often repeat it.
	complaint string
}

// laneStyle is a child as it looks: its depth and colour.
type laneStyle struct {
	depth int
	tint  style
	spoke bool // something of the open message was shown

	called map[string]bool // ids of the calls that began within the open message
}

// startedCall is what tool.end wants to know of its tool.start.
type startedCall struct {
	tool     string
	at       time.Time
	streamed bool // its output was shown as it came

	announced bool // it was shown with the message that asks for it, and has not begun
}

// flow names what an open paragraph holds, so that the next piece of it goes on in place.
type flow struct {
	typ, child, call string
	index            int
	bytes            int64 // of data deltas, which are counted and not shown
}

func newTimeline(w io.Writer, s terminal.Screen) *timeline {
	return &timeline{pen: newPen(w, s), lanes: map[string]*laneStyle{"": {}}, calls: map[string]*startedCall{}}
}

// fields is the union of what the timeline reads from payloads.
type fields struct {
	Text       string            `json:"text"`
	Index      int               `json:"index"`
	MessageID  string            `json:"message_id"`
	Role       string            `json:"role"`
	Model      string            `json:"model"`
	Kind       string            `json:"kind"`
	CallID     string            `json:"call_id"`
	Tool       string            `json:"tool"`
	Input      json.RawMessage   `json:"input"`
	Output     json.RawMessage   `json:"output"`
	OK         *bool             `json:"ok"`
	Complete   *bool             `json:"complete"`
	Error      json.RawMessage   `json:"error"`
	Detail     json.RawMessage   `json:"error_detail"` // of tool.end, whose error is a code, or was an object once
	DurationMS *float64          `json:"duration_ms"`
	Attempt    int               `json:"attempt"`
	Attempts   int               `json:"attempts"`
	BlobRef    string            `json:"blob_ref"`
	StopReason string            `json:"stop_reason"`
	Usage      json.RawMessage   `json:"usage"`
	Content    json.RawMessage   `json:"content"`
	StepIndex  int               `json:"step_index"`
	StepKind   string            `json:"step_kind"`
	ChildID    string            `json:"child_id"`
	Prompt     string            `json:"prompt"`
	Tools      []string          `json:"tools_allowed"`
	Plan       *planFields       `json:"plan"`
	State      schema.RunState   `json:"state"`
	Reason     string            `json:"reason"`
	Dropped    int64             `json:"dropped_count"`
	Options    []json.RawMessage `json:"options"`
	Answer     json.RawMessage   `json:"answer"`
	Instruct   string            `json:"instruction"`
	MediaType  string            `json:"media_type"`
	Data       string            `json:"data"`
	Message    string            `json:"message"`
	Done       *float64          `json:"done"`
	Total      *float64          `json:"total"`
	Name       string            `json:"name"`
	TaskID     string            `json:"task_id"`
	Bytes      int64             `json:"bytes"`
	Events     int64             `json:"events"`
}

type planFields struct {
	Steps []struct {
		Title  string   `json:"title"`
		Intent string   `json:"intent"`
		Tools  []string `json:"est_tools"`
		Cost   float64  `json:"est_cost_usd"`
	} `json:"steps"`
	Cost float64 `json:"est_total_cost_usd"`
}

// event shows the next event. Errors of the output come with flush.
func (t *timeline) event(_ []byte, e *schema.Event) error {
	at, err := time.Parse(time.RFC3339Nano, e.TS)
	if err == nil && !t.seen {
		t.zero, t.seen = at, true
	}
	if e.Type == "run.snapshot" {
		t.snapshot(e, at)
		return nil
	}
	info, _ := schema.Lookup(e.Type)
	p, whole := readFields(info, e.Payload)
	switch {
	case !whole && info.Delta:
		t.other(e, at)
	case info.Delta:
		t.delta(e, &p, at)
	default:
		if !t.control(e, &p, info.Family, at) || !whole {
			t.other(e, at)
		}
	}
	return nil
}

// readFields reads from a payload what it can. A field in an unexpected form hides no other; whole is false when it is
// one that events of this type have, and not one that a producer has put beside them.
func readFields(info schema.TypeInfo, payload []byte) (p fields, whole bool) {
	err := json.Unmarshal(payload, &p)
	if err == nil || info.Family == "" {
		return p, true
	}
	var has struct{ Properties map[string]json.RawMessage }
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(info.Schema), &has) != nil || json.Unmarshal(payload, &all) != nil {
		return p, false
	}
	for name := range all {
		if has.Properties[name] == nil {
			delete(all, name)
		}
	}
	own, err := json.Marshal(all)
	return p, err == nil && json.Unmarshal(own, new(fields)) == nil
}

// control shows what is no delta; false: its type has no look of its own.
func (t *timeline) control(e *schema.Event, p *fields, family schema.Family, at time.Time) bool {
	switch family {
	case schema.FamilyMessage:
		t.message(e, p, at)
	case schema.FamilyTool:
		t.tool(e, p, at)
	case schema.FamilyStep, schema.FamilyChild, schema.FamilyPlan, schema.FamilyLifecycle:
		t.native(e, p, at)
	case schema.FamilyModel, schema.FamilyTurn, schema.FamilyTask, schema.FamilyLoss:
		t.frame(e, p, at)
	case schema.FamilyInput, schema.FamilyCommand, schema.FamilyProgress:
		t.dialogue(e, p, at)
	default:
		if e.Type != proxy.TypeAttempt {
			return false
		}
		t.frame(e, p, at)
	}
	return true
}

func (t *timeline) flush() error { return t.pen.w.Flush() }

// interrupt ends the open paragraph, so that another line can be written to the terminal.
func (t *timeline) interrupt() {
	t.endFlow()
	t.pen.w.Flush() // an error stays with the writer and comes back from flush
}

func (t *timeline) close() error {
	t.endFlow()
	return t.pen.w.Flush()
}

// lane returns a child its look, by order of appearance, and the root none.
func (t *timeline) lane(e *schema.Event) *laneStyle {
	l := t.lanes[e.ChildID]
	if l == nil {
		l = &laneStyle{depth: min(max(1, len(e.Path)-1), 4), tint: childStyles[(len(t.lanes)-1)%len(childStyles)]}
		t.lanes[e.ChildID] = l
	}
	return l
}

// openParagraph opens a paragraph for an event.
func (t *timeline) openParagraph(e *schema.Event, at time.Time, glyph string, tint, text style) {
	t.endFlow()
	l := t.lane(e)
	g := gutter{depth: l.depth, lane: l.tint, glyph: glyph, tint: tint}
	if !at.IsZero() {
		g.clock = clock(at.Sub(t.zero))
	}
	if e.ChildID != t.spoke { // once, until an event of another lane comes
		g.label = shortID(e.ChildID)
	}
	t.spoke = e.ChildID
	t.pen.openParagraph(g, text)
}

// line is a paragraph of one piece.
func (t *timeline) line(e *schema.Event, at time.Time, glyph string, tint, text style, s string) {
	t.openParagraph(e, at, glyph, tint, text)
	t.pen.text(s)
	t.pen.closeParagraph()
}

func (t *timeline) endFlow() {
	if t.flow.bytes > 0 {
		t.pen.text(" " + terminal.ByteCount(t.flow.bytes))
	}
	t.flow = flow{}
	t.pen.closeParagraph()
}

// delta goes on with the open paragraph when it is a piece of the same thing.
func (t *timeline) delta(e *schema.Event, p *fields, at time.Time) {
	f := flow{typ: e.Type, child: e.ChildID, call: p.CallID}
	if e.Type == schema.TypeDataDelta {
		f.index = p.Index // blocks of text go on: a provider parts a sentence to cite its sources
	}
	if was := t.flow; !t.pen.open || was.typ != f.typ || was.child != f.child || was.call != f.call ||
		was.index != f.index {
		t.beginDelta(e, p, at)
		t.flow = f
	}
	t.lane(e).spoke = true
	if e.Type == schema.TypeDataDelta {
		t.flow.bytes += int64(len(p.Data)) * 3 / 4 // base64
		return
	}
	t.pen.text(p.Text)
}

func (t *timeline) beginDelta(e *schema.Event, p *fields, at time.Time) {
	switch e.Type {
	case schema.TypeReasoningDelta:
		t.openParagraph(e, at, "~", styleDim, styleThought)
	case schema.TypeToolInputDelta:
		t.openParagraph(e, at, "…", styleDim, styleDim)
		t.pen.text(t.toolName(t.call(p.CallID), p.CallID) + " ")
	case schema.TypeToolOutputDelta:
		t.openParagraph(e, at, "<", styleTool, styleNone)
		c := t.call(p.CallID)
		c.streamed = true
		t.pen.inStyle(styleTool, t.toolName(c, p.CallID)+" ")
	case schema.TypeDataDelta:
		t.openParagraph(e, at, "#", styleDim, styleDim)
		t.pen.text(p.MediaType)
	default:
		t.openParagraph(e, at, "", styleNone, styleNone)
	}
}

func (t *timeline) call(id string) *startedCall {
	c := t.calls[id]
	if c == nil {
		c = &startedCall{}
		t.calls[id] = c
	}
	return c
}

func (t *timeline) toolName(c *startedCall, id string) string {
	if c.tool != "" {
		return c.tool
	}
	return id
}

// other shows a type that has no look of its own: its name and its payload.
func (t *timeline) other(e *schema.Event, at time.Time) {
	t.openParagraph(e, at, "·", styleDim, styleDim)
	t.pen.text(e.Type + " " + terminal.Clip(compactJSON(e.Payload), maxInline))
	t.pen.closeParagraph()
}

// Bounds of what is shown of an input or output.
const (
	maxInline = 400 // runes
	maxLines  = 12
)

// shortID keeps the telling end of a minted id.
func shortID(id string) string {
	const most = 14
	if len(id) <= most {
		return id
	}
	return "…" + id[len(id)-(most-1):]
}

func usd(v float64) string { return fmt.Sprintf("$%.2f", v) }
