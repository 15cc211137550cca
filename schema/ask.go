package schema

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Ask is a question of a run that waits for a person or a client: a request for input, or a call of a tool that needs
// somebody's permission or that the client carries out.
type Ask struct {
	Seq     Seq       `json:"seq"`
	TS      time.Time `json:"ts"`
	Child   string    `json:"child,omitempty"`
	Request string    `json:"request,omitempty"` // request_id of input.requested; "": the call asks
	Call    string    `json:"call,omitempty"`    // call_id, where it is about a call
}

// AskEvent is an event that asks, or that ends what was asked before it.
type AskEvent struct {
	Ask
	kind askKind
}

type askKind uint8

const (
	asks     askKind = iota
	answers          // names a request or a call
	endsCall         // tool.end
	endsLane         // a turn that was cancelled or failed, a child's final state: no answers are waited for any more
	endsRun          // a final state of the root
)

// AskTypes are the types of which AskEventOf reads events.
var AskTypes = []string{TypeInputRequested, TypeInputAnswered, typeCommandAnswer, TypeToolStart, TypeToolEnd, TypeTurnEnd, TypeRunLifecycle}

const typeCommandAnswer = commandPrefix + "answer"

// Asks reports whether an event of a type may ask, and Answers that it may end what was asked.
func Asks(typ string) bool { return typ == TypeInputRequested || typ == TypeToolStart }

// Answers is described at Asks. A request about a call takes the place of what the call asks.
func Answers(typ string) bool {
	switch typ {
	case TypeInputRequested, TypeInputAnswered, typeCommandAnswer, TypeToolEnd, TypeTurnEnd, TypeRunLifecycle:
		return true
	}
	return false
}

// AskEventOf reads an event. ok is false for one that neither asks nor ends anything.
func AskEventOf(seq Seq, ts time.Time, typ, child string, payload []byte) (e AskEvent, ok bool) {
	if y := ts.UTC().Year(); y < 1 || y > 9999 {
		ts = time.Unix(0, 0) // no JSON has it
	}
	e.Ask = Ask{Seq: seq, TS: ts.UTC(), Child: child}
	if !Asks(typ) && !Answers(typ) {
		return e, false
	}
	if typ == TypeRunLifecycle {
		l, err := ParseLifecycle(payload)
		if e.kind = endsRun; child != "" {
			e.kind = endsLane
		}
		return e, err == nil && l.State.Final()
	}
	p := askFields(payload)
	switch e.Request, e.Call = p["request_id"], p["call_id"]; typ {
	case TypeInputRequested:
		return e, e.Request != ""
	case TypeToolStart:
		e.Request = ""
		return e, e.Call != "" && (p["custom"] == "true" || cmp.Or(p["permission"], p["evaluated_permission"]) == "ask")
	case TypeToolEnd:
		e.kind = endsCall
		return e, e.Call != ""
	case TypeTurnEnd:
		e.kind = endsLane
		return e, turnBroken(p["stop_reason"])
	}
	e.kind = answers
	return e, e.Request != ""
}

// turnBroken reports whether a turn ended so that answers to its questions are not waited for.
func turnBroken(stop string) bool {
	switch stop {
	case "cancelled", "canceled", "aborted", "interrupted", "error", "failed", "retries_exhausted":
		return true
	}
	return false
}

// askFields returns the fields that are read here; those of text without quotes, long ones as a hash.
func askFields(payload []byte) map[string]string {
	p := make(map[string]string)
	_ = eachField(payload, func(name string, v []byte) error { // a damaged payload asks nothing
		switch name {
		case "custom":
			p[name] = string(v)
		case "request_id", "call_id", "permission", "evaluated_permission", "stop_reason":
			s, err := unquote(v)
			if err != nil {
				return nil
			}
			if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) > maxAskID {
				sum := sha256.Sum256([]byte(s))
				s = hex.EncodeToString(sum[:])
			}
			p[name] = s
		}
		return nil
	})
	return p
}

// Bounds of what is kept of a run's open questions.
const (
	maxAskID = 128
	maxAsks  = 256 // the oldest; when there are more, a run may count as one that waits no more although a newer one does
)

// MergeAsks returns the questions that are open, oldest first, after some more events: open were open before, and
// events are all that ask or end anything from some seq on, whatever of them is in open already. Their order and
// doubles do not matter. open is not changed.
func MergeAsks(open []Ask, events []AskEvent) []Ask {
	open = slices.Clone(open)
	for i := range events {
		if e := &events[i]; e.kind == asks {
			open = append(open, e.Ask)
		}
	}
	slices.SortFunc(open, func(x, y Ask) int { return cmp.Compare(x.Seq, y.Seq) })
	open = slices.CompactFunc(open, func(x, y Ask) bool { return x.Seq == y.Seq })
	for i := range events {
		open = slices.DeleteFunc(open, events[i].ends)
	}
	return open[:min(len(open), maxAsks)]
}

// ends reports whether an event ends a question.
func (e *AskEvent) ends(a Ask) bool {
	if a.Seq >= e.Seq {
		return false
	}
	switch e.kind {
	case asks: // about the call that asks
		return e.Request != "" && a.Request == "" && e.Call == a.Call && e.Child == a.Child
	case answers: // ids of calls stand for themselves
		return e.Request == a.Request || a.Call != "" && e.Request == a.Call && e.Child == a.Child
	case endsCall:
		return e.Call == a.Call && e.Child == a.Child
	case endsLane:
		return e.Child == a.Child
	}
	return true
}

// FormatAsks returns open questions as text, "" for none.
func FormatAsks(open []Ask) string {
	if len(open) == 0 {
		return ""
	}
	b, _ := json.Marshal(open) // texts and numbers always encode
	return string(b)
}

// ParseAsks reads what FormatAsks wrote, leniently: what is none of it counts as none.
func ParseAsks(text string) (open []Ask) {
	if text != "" && json.Unmarshal([]byte(text), &open) != nil {
		return nil
	}
	return open
}
