package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// metisPoint is where a turn is cancelled, and how it ends then.
type metisPoint struct {
	name, say string
	// at reads up to the point, on a client that sees workers too.
	at func(c *metisConn)
	// end is the story behind the newest event before the cancel, of what cannot be there without it.
	end string
	// missed reports that the turn was past the point when the cancel arrived; then it is tried again.
	missed func(story string) bool
}

var metisPoints = []metisPoint{
	{"07 in the model's text", "long", func(c *metisConn) { c.until("text.delta") },
		"message.complete llm.call_failed turn.cancelled", nil},
	{"07 in a tool's input", "tools", func(c *metisConn) { c.until("tool.use_start") },
		"tool.use_end message.complete llm.call_failed turn.cancelled",
		func(s string) bool { return strings.Contains(s, "llm.call_completed") }},
	{"08 while tools work", "tools wait", func(c *metisConn) { c.until("tool.called"); c.until("tool.called") },
		"tool.failed tool.failed turn.cancelled", nil},
	{"08b at the seam", "tools seam", func(c *metisConn) { c.until("llm.call_completed") },
		"llm.call_completed tool.failed tool.failed turn.cancelled",
		func(s string) bool { return strings.Contains(s, "tool.called") }},
	{"07 in a follow-up call", "tool long", func(c *metisConn) { c.until("tool.completed"); c.until("text.delta") },
		"message.complete llm.call_failed turn.cancelled", nil},
	{"09 in a delegation", "delegate long",
		func(c *metisConn) { c.untilOf(c.until("delegate.started").p.WorkerSession, "text.delta") },
		"[message.complete] [llm.call_failed] [turn.cancelled] [session.ended] delegate.failed tool.failed turn.cancelled", nil},
}

// TestMetisCancel: wherever a turn is, and whoever cancels it, everyone who is attached sees one and the same ending,
// and so does the log.
func TestMetisCancel(t *testing.T) {
	beside(t)
	m := metisDev(t)
	ways := []string{"socket", "HTTP", "third"}
	for i, p := range metisPoints {
		for j, way := range ways {
			if !metisLong() && i%len(ways) != j {
				continue
			}
			t.Run(p.name+", by "+way, func(t *testing.T) {
				t.Parallel()
				m := m
				m.t = t
				for try := 0; !p.cancel(t, m, way); try++ {
					if try == 5 {
						t.Fatal("the point was missed each time")
					}
				}
			})
		}
	}
}

// cancel plays one cancellation; it returns false when the point was missed.
func (p metisPoint) cancel(t *testing.T, m metis, way string) bool {
	session := m.create()
	all, chat, third := m.watch(session, metisAll, "", true), m.watch(session, metisChat, "", true), m.watch(session,
		metisChat, "", true)
	turn := m.say(session, p.say)
	p.at(all)
	n := len(all.events)
	switch way {
	case "socket":
		all.send(map[string]any{"type": "cancel", "turn_id": turn, "reason": "user_cancel"})
	case "HTTP":
		m.must(202, "POST", "/sessions/"+session+"/turns/"+turn+"/cancel", map[string]any{"reason": "user_cancel"})
	case "third":
		third.send(map[string]any{"type": "cancel", "turn_id": turn, "reason": "I have seen enough"})
	}
	for _, c := range []*metisConn{all, chat, third} {
		c.turnEnd()
	}
	if p.missed != nil && p.missed(metisStory(session, all.events[n:])) {
		return false
	}
	if got := all.story(); !strings.HasSuffix(got, p.end) {
		t.Errorf("got  %s\nwant … %s", got, p.end)
	}
	metisEnding(t, all.events[n:], way)
	if !slices.Equal(bytesOf(chat.events), bytesOf(third.events)) {
		t.Errorf("two clients see %s and %s", chat.story(), third.story())
	}
	var shown []metisEvent
	for _, e := range all.events {
		if metisFilters[1].shows(session, &e) {
			shown = append(shown, e)
		}
	}
	if !slices.Equal(bytesOf(chat.events), bytesOf(shown)) {
		t.Errorf("chat sees %s, not %s", chat.story(), metisStory(session, shown))
	}
	if len(chat.fold.Replaced)+len(all.fold.Replaced) > 0 {
		t.Errorf("what was streamed is not the final content of %v", all.fold.Replaced)
	}
	if got := all.quiet() + chat.quiet(); got != "" {
		t.Errorf("behind the end came %s", got)
	}
	ends := 0
	for _, line := range events(t, strings.TrimSuffix(m.base, "/metis")+"/v1/agent/runs/"+session) {
		if strings.Contains(line, `"type":"turn.end"`) && strings.Contains(line, `"child_id":null`) {
			if ends++; !strings.Contains(line, `"stop_reason":"cancelled"`) {
				t.Errorf("the log says %s", line)
			}
		}
	}
	if ends != 1 {
		t.Errorf("the log has %d ends", ends)
	}
	return true
}

// metisEnding holds the payloads of an ending to the text (6.2).
func metisEnding(t *testing.T, events []metisEvent, way string) {
	t.Helper()
	for _, e := range events {
		p := e.p
		switch e.Type {
		case "message.complete":
			if p.StopReason != "cancelled" {
				t.Errorf("the message ends so: %s", e.raw)
			}
		case "llm.call_failed", "tool.failed":
			if p.ErrorClass != "cancelled" {
				t.Errorf("%s", e.raw)
			}
		case "delegate.failed":
			if p.FailureMode != "cancelled_by_user" {
				t.Errorf("%s", e.raw)
			}
		case "turn.cancelled":
			if p.Reason != "user_cancel" || way == "third" && e.Actor != "worker" && p.ReasonText != "I have seen enough" {
				t.Errorf("%s", e.raw)
			}
		}
	}
}

func metisCancelTwice(t *testing.T, m metis) {
	session := m.create()
	c := m.watch(session, metisFull, "", true)
	turn := m.say(session, "long")
	c.until("text.delta")
	for range 3 {
		c.send(map[string]any{"type": "cancel", "turn_id": turn})
	}
	if status, _ := m.do("POST", "/sessions/"+session+"/turns/"+turn+"/cancel", map[string]any{}); status != 202 &&
		status != 409 {
		t.Errorf("cancelled once more: %d", status)
	}
	c.turnEnd()
	c.send(map[string]any{"type": "cancel", "turn_id": turn})
	if got := c.quiet(); got != "" || strings.Count(c.story(), "turn.cancelled") != 1 {
		t.Errorf("%s, then %s", c.story(), got)
	}
	if status, out := m.do("POST", "/sessions/"+session+"/turns/"+turn+"/cancel", map[string]any{}); status != 409 ||
		!strings.Contains(fmt.Sprint(out), "turn_already_completed") {
		t.Errorf("cancelled behind its end: %d %v", status, out)
	}
	m.say(session, "hello") // a fresh turn (6.3)
	c.turnEnd()
	if !strings.HasSuffix(c.story(), metisPlain) {
		t.Errorf("the next turn: %s", c.story())
	}
	// A turn that is cancelled at once, as a rule before an agent has taken it, ends as well.
	turn = m.say(session, "hello")
	m.do("POST", "/sessions/"+session+"/turns/"+turn+"/cancel", map[string]any{})
	c.turnEnd()
	if got := c.quiet(); got != "" {
		t.Errorf("behind its end came %s", got)
	}
}

// metisRace cancels turns at about the moment of their ends: each has one end, and everyone sees the same.
func metisRace(t *testing.T, m metis) {
	session := m.create()
	a, b := m.watch(session, metisChat, "", true), m.watch(session, metisChat, "", true)
	seen := map[string]int{}
	rounds := 12
	if metisLong() {
		rounds = 100
	}
	for range rounds {
		n := len(a.events)
		turn := m.say(session, "hi")
		a.until("text.delta")
		<-time.After(time.Duration(rand.Int64N(int64(150 * time.Millisecond))))
		b.send(map[string]any{"type": "cancel", "turn_id": turn})
		m.do("POST", "/sessions/"+session+"/turns/"+turn+"/cancel", map[string]any{})
		end := a.turnEnd()
		seen[end.Type]++
		if again := b.turnEnd(); again.raw != end.raw || *end.Turn != turn {
			t.Fatalf("one sees %s, the other %s", end.raw, again.raw)
		}
		if got := metisStory(session, a.events[n:]); strings.Count(got, "turn.c") != 1 {
			t.Fatalf("two ends: %s", got)
		}
	}
	if got := a.quiet() + b.quiet(); got != "" || !slices.Equal(bytesOf(a.events), bytesOf(b.events)) {
		t.Errorf("behind the last end came %s", got)
	}
	t.Logf("%v", seen)
}
