package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentstream/adapters/proxy"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// message shows framing: whose message it is, and how a message ended. Its content is shown only when no
// delta showed it before.
func (t *timeline) message(e *schema.Event, p *fields, at time.Time) {
	l := t.lane(e)
	switch e.Type {
	case schema.TypeMessageStart:
		l.spoke, l.called = false, nil
		t.line(e, at, "◇", styleDim, styleDim, strings.TrimSpace(p.Role+" "+p.Model))
	case schema.TypeMessageEnd:
		if !l.spoke {
			t.content(e, p.Content, at)
		}
		l.called = nil
		if len(p.Error) > 0 && string(p.Error) != "null" {
			t.complaint = errorText(p.Error)
			t.line(e, at, "✗", styleError, styleError, terminal.Clip(t.complaint, maxInline))
			return
		}
		if s := joinNonEmpty(" · ", p.StopReason, usageText(p.Usage)); s != "" {
			t.line(e, at, "◆", styleDim, styleDim, s)
		}
	case schema.TypeBlockStart:
		if p.Tool != "" && p.CallID != "" {
			t.call(p.CallID).tool = p.Tool
		}
		if p.Kind != "text" && p.Kind != "reasoning" && p.Kind != "tool_use" { // those show with their deltas
			t.line(e, at, "▫", styleDim, styleDim, p.Kind)
		}
	case schema.TypeBlockEnd:
		if p.Complete != nil && !*p.Complete {
			t.line(e, at, "!", styleWarn, styleWarn, "the block was cut off")
		}
	}
}

// content shows what a message says as a whole, in the order of its blocks: texts, thoughts, and calls that were not
// shown yet.
func (t *timeline) content(e *schema.Event, content json.RawMessage, at time.Time) {
	var blocks []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking string          `json:"thinking"`
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
	}
	if json.Unmarshal(content, &blocks) != nil {
		if text := contentText(content); text != "" {
			t.line(e, at, "", styleNone, styleNone, text)
		}
		return
	}
	text := ""
	said := func() {
		if text != "" {
			t.line(e, at, "", styleNone, styleNone, text)
		}
		text = ""
	}
	for _, b := range blocks {
		switch b.Type {
		case "text", "":
			text += b.Text
		case "thinking":
			said()
			if b.Thinking != "" {
				t.line(e, at, "~", styleDim, styleThought, b.Thinking)
			}
		case "tool_use":
			said()
			if b.ID != "" && b.Name != "" && !t.lane(e).called[b.ID] {
				t.startCall(e, b.Name, b.Input, at)
				t.call(b.ID).announced = true
			}
		}
	}
	said()
}

// startCall shows that a call begins.
func (t *timeline) startCall(e *schema.Event, tool string, input json.RawMessage, at time.Time) {
	t.openParagraph(e, at, "▶", styleTool, styleNone)
	t.pen.inStyle(styleTool, tool)
	t.pen.text("(" + terminal.Clip(arguments(input), maxInline) + ")")
	t.pen.closeParagraph()
}

// frame shows what stands around messages and tools, as far as it says something that they do not: what
// went well is silent.
func (t *timeline) frame(e *schema.Event, p *fields, at time.Time) {
	switch e.Type {
	case schema.TypeTurnEnd:
		if p.StopReason == "cancelled" || p.StopReason == "error" && t.isNews(p.Reason) {
			t.line(e, at, "✗", styleError, styleError, joinNonEmpty(": ", "turn "+p.StopReason, p.Reason))
		}
	case schema.TypeModelEnd:
		if text := errorText(p.Error); p.OK != nil && !*p.OK && t.isNews(text) {
			t.line(e, at, "✗", styleError, styleError, joinNonEmpty(": ", "model", terminal.Clip(text, maxInline)))
		}
		if p.Attempts > 1 {
			t.line(e, at, "↻", styleDim, styleDim, fmt.Sprintf("%d attempts", p.Attempts))
		}
	case proxy.TypeAttempt:
		why := strings.TrimPrefix(errorText(p.Error), "error: ")
		text := fmt.Sprintf("attempt %d failed: %s", p.Attempt, terminal.Clip(why, maxInline))
		t.line(e, at, "↻", styleWarn, styleWarn, text)
	case schema.TypeTaskStart:
		t.line(e, at, "▷", styleTool, styleNone, cmp.Or(p.Name, p.TaskID))
	case schema.TypeTaskEnd:
		if p.OK != nil && !*p.OK {
			t.line(e, at, "✗", styleError, styleError, cmp.Or(p.Name, p.TaskID))
		} else {
			t.line(e, at, "✓", styleTool, styleNone, cmp.Or(p.Name, p.TaskID))
		}
	case schema.TypeLoss:
		var what []string
		if p.Events > 0 {
			what = append(what, fmt.Sprintf("%d events", p.Events))
		}
		if p.Bytes > 0 {
			what = append(what, terminal.ByteCount(p.Bytes))
		}
		t.line(e, at, "!", styleWarn, styleWarn, joinNonEmpty(": ", "lost "+strings.Join(what, ", "), p.Reason))
	}
}

// isNews reports whether a complaint is another one than the last, which message, model call and turn repeat in
// turn.
func (t *timeline) isNews(complaint string) bool {
	if complaint != "" && strings.HasSuffix(t.complaint, complaint) {
		return false
	}
	t.complaint = complaint
	return true
}

// contentText joins the text of content blocks, or takes content that is a text by itself.
func contentText(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	_ = json.Unmarshal(content, &blocks) // a block in an unexpected form hides no other
	var b strings.Builder
	for _, bl := range blocks {
		if bl.Type == "text" || bl.Type == "" {
			b.WriteString(bl.Text)
		}
	}
	return b.String()
}

func errorText(v json.RawMessage) string {
	var e struct {
		Type, Code, Message string
	}
	if json.Unmarshal(v, &e) == nil && e.Message != "" {
		return joinNonEmpty(": ", e.Code, e.Type, e.Message)
	}
	return plain(v)
}

func usageText(v json.RawMessage) string {
	var u map[string]json.RawMessage
	if json.Unmarshal(v, &u) != nil {
		return ""
	}
	var parts []string
	for _, count := range []struct{ names, what string }{
		{"input_tokens prompt_tokens promptTokenCount", "in"}, // the second is of Chat Completions, the third of Gemini
		{"output_tokens completion_tokens candidatesTokenCount", "out"},
	} {
		for name := range strings.FieldsSeq(count.names) {
			if n := u[name]; len(n) > 0 && (n[0] == '-' || n[0] >= '0' && n[0] <= '9') {
				parts = append(parts, terminal.Clip(string(n), 20)+" "+count.what)
				break
			}
		}
	}
	return strings.Join(parts, ", ")
}

func joinNonEmpty(sep string, parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, sep)
}

// tool shows a call with its input, and its end with duration and output.
func (t *timeline) tool(e *schema.Event, p *fields, at time.Time) {
	c := t.call(p.CallID)
	switch e.Type {
	case schema.TypeToolRun: // its time is counted from here
		c.at = at
		return
	case schema.TypeToolStart:
		c.tool, c.at = p.Tool, at
		if !c.announced {
			t.startCall(e, p.Tool, p.Input, at)
		}
		c.announced = false // the same id once more is another call
		l := t.lane(e)
		if l.called == nil {
			l.called = map[string]bool{}
		}
		l.called[p.CallID] = true
		return
	}
	glyph, tint := "✓", styleGood
	if p.OK != nil && !*p.OK {
		glyph, tint = "✗", styleError
	}
	t.openParagraph(e, at, glyph, tint, styleNone)
	t.pen.inStyle(tint, t.toolName(c, p.CallID))
	switch {
	case p.DurationMS != nil:
		t.pen.inStyle(styleDim, " "+clock(time.Duration(*p.DurationMS*float64(time.Millisecond))))
	case !c.at.IsZero() && !at.IsZero():
		t.pen.inStyle(styleDim, " "+clock(at.Sub(c.at)))
	}
	if text := errorText(p.Detail); text != "" {
		t.pen.inStyle(styleError, " "+terminal.Clip(text, maxInline))
	} else if len(p.Error) > 0 && string(p.Error) != "null" {
		t.pen.inStyle(styleError, " "+terminal.Clip(errorText(p.Error), maxInline))
	}
	if !c.streamed && len(p.Output) > 0 && string(p.Output) != "null" {
		t.toolOutput(plain(p.Output))
	}
	if p.BlobRef != "" {
		t.pen.inStyle(styleDim, " → "+p.BlobRef)
	}
	t.pen.closeParagraph()
	delete(t.calls, p.CallID)
}

func (t *timeline) toolOutput(out string) {
	out = clipLines(terminal.Clip(out, 4*maxInline), maxLines)
	if strings.Contains(out, "\n") {
		t.pen.text("\n" + out)
		return
	}
	t.pen.text(" → " + terminal.Clip(out, maxInline))
}

// native shows what the published protocol has besides text and tools.
func (t *timeline) native(e *schema.Event, p *fields, at time.Time) {
	switch e.Type {
	case schema.TypeStepBoundary:
		t.openParagraph(e, at, "", styleNone, styleRule)
		t.pen.text(fmt.Sprintf("── step %d · %s ", p.StepIndex, p.StepKind))
		t.pen.text(strings.Repeat("─", min(t.pen.rest(), 60)))
		t.pen.closeParagraph()
	case schema.TypeChildSpawn:
		child := t.lane(&schema.Event{ChildID: p.ChildID, Path: append(e.Path[:len(e.Path):len(e.Path)], p.ChildID)})
		if e.ChildID != "" {
			child.depth = min(t.lane(e).depth+1, 4)
		}
		t.openParagraph(e, at, "↳", child.tint, styleNone)
		t.pen.inStyle(child.tint, shortID(p.ChildID))
		t.pen.text(" " + terminal.Clip(p.Prompt, maxInline))
		if len(p.Tools) > 0 {
			t.pen.inStyle(styleDim, " ["+strings.Join(p.Tools, " ")+"]")
		}
		t.pen.closeParagraph()
	case schema.TypePlanProposal:
		t.plan(e, p.Plan, at)
	case schema.TypeRunLifecycle:
		t.lifecycle(e, p, at)
	}
}

func (t *timeline) plan(e *schema.Event, plan *planFields, at time.Time) {
	t.openParagraph(e, at, "☰", styleBold, styleNone)
	if plan == nil {
		plan = &planFields{}
	}
	t.pen.inStyle(styleBold, fmt.Sprintf("plan of %d steps", len(plan.Steps)))
	if plan.Cost > 0 {
		t.pen.inStyle(styleDim, " about "+usd(plan.Cost))
	}
	for i, s := range plan.Steps {
		t.pen.text(fmt.Sprintf("\n%d. %s", i+1, terminal.Clip(s.Title, maxInline)))
		cost := ""
		if s.Cost > 0 {
			cost = usd(s.Cost)
		}
		if more := joinNonEmpty(" · ", s.Intent, strings.Join(s.Tools, " "), cost); more != "" {
			t.pen.inStyle(styleDim, "  "+more)
		}
	}
	t.pen.closeParagraph()
}

// badges are the states' looks: black on a colour, so that they stand out in both themes.
var badges = map[schema.RunState]style{
	schema.StatePlanning: "30;46", schema.StateAwaitingApproval: "30;43", schema.StateRunning: "30;44",
	schema.StatePaused: "30;43", schema.StateRedirecting: "30;45", schema.StateDone: "30;42",
	schema.StateAborted: "30;43", schema.StateError: "30;41",
}

func (t *timeline) lifecycle(e *schema.Event, p *fields, at time.Time) {
	t.openParagraph(e, at, "●", styleNone, styleNone)
	t.pen.inStyle(badges[p.State], t.badge(p.State))
	if p.Reason != "" {
		t.pen.text(" " + terminal.Clip(p.Reason, maxInline))
	}
	if p.Dropped > 0 {
		t.pen.inStyle(styleWarn, fmt.Sprintf(" %d events were dropped on the way to this client", p.Dropped))
	}
	t.pen.closeParagraph()
}

func (t *timeline) badge(state schema.RunState) string {
	if t.pen.screen.Color {
		return " " + string(state) + " "
	}
	return "[" + string(state) + "]"
}

// dialogue shows what people and the run say to each other.
func (t *timeline) dialogue(e *schema.Event, p *fields, at time.Time) {
	switch e.Type {
	case schema.TypeInputRequested:
		t.openParagraph(e, at, "?", styleWarn, styleBold)
		t.pen.text(terminal.Clip(p.Prompt, maxInline))
		for i, o := range p.Options {
			t.pen.text(fmt.Sprintf("\n%d) %s", i+1, terminal.Clip(plain(o), maxInline)))
		}
		t.pen.closeParagraph()
	case schema.TypeInputAnswered:
		t.line(e, at, "»", styleWarn, styleNone, cmp.Or(terminal.Clip(plain(p.Answer), maxInline), "no answer"))
	case schema.TypeCommandsTaken: // for libraries
	case schema.TypeProgress:
		s := p.Message
		if p.Done != nil && p.Total != nil {
			s = joinNonEmpty(" ", s, fmt.Sprintf("%g/%g", *p.Done, *p.Total))
		}
		t.line(e, at, "·", styleDim, styleDim, terminal.Clip(s, maxInline))
	case schema.TypeCommandMessage:
		t.openParagraph(e, at, "»", styleBold, styleBold)
		t.pen.text(joinNonEmpty(": ", e.Actor, contentText(p.Content)))
		t.pen.closeParagraph()
	default:
		verb := strings.TrimPrefix(e.Type, "command.")
		var answer string
		if len(p.Answer) > 0 {
			answer = plain(p.Answer)
		}
		t.line(e, at, "»", styleWarn, styleBold,
			terminal.Clip(joinNonEmpty(": ", e.Actor, verb, p.Instruct, p.Reason, answer), maxInline))
	}
}
