package timeline

import (
	"fmt"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// snapshot shows what a stream that was joined late begins with: how the run stands, the newest words
// of each message that is still being written, and the calls that are still running. What follows goes
// on from there.
func (t *timeline) snapshot(e *schema.Event, at time.Time) {
	var f schema.Fold
	if agentstream.Fold(&f, e) != nil {
		t.other(e, at)
		return
	}
	t.openParagraph(e, at, "Σ", styleBold, styleNone)
	t.pen.inStyle(badges[f.State], t.badge(f.State))
	t.pen.text(" " + joinNonEmpty(" · ", fmt.Sprintf("%d events", f.Last), count(len(f.Messages), "message"),
		count(len(f.Calls), "tool call"), count(len(f.Children), "child run"), terminal.Clip(f.Reason, maxInline)))
	t.pen.closeParagraph()
	for _, c := range f.Children { // their looks, in order
		t.lane(&schema.Event{ChildID: c.ID})
	}
	for _, m := range f.Messages {
		if m.End != 0 || len(m.Blocks) == 0 {
			continue
		}
		lane := &schema.Event{ChildID: m.Child}
		t.lane(lane).spoke = true
		last := m.Blocks[len(m.Blocks)-1]
		if text := last.Text.String(); last.Kind == "text" && text != "" {
			t.line(lane, at, "", styleNone, styleNone, lastRunes(text, maxInline))
		}
	}
	for _, c := range f.Calls {
		if !c.Done {
			t.call(c.ID).tool = c.Tool
			t.line(&schema.Event{ChildID: c.Child}, at, "▶", styleTool, styleNone,
				c.Tool+"("+terminal.Clip(arguments(c.Input), maxInline)+") is running")
		}
	}
}

func count(n int, what string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// lastRunes is clip from the other end.
func lastRunes(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return "…" + string(r[len(r)-most:])
}
