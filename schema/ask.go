package schema

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"agentstream/schema/jsonscan"
)

// Ask is a question of a run that waits for a person or a client: a request for input, or a call of a tool that needs
// somebody's permission or that the client carries out.
type Ask struct {
	Seq     Seq       `json:"seq"`
	TS      time.Time `json:"ts"`
	Child   string    `json:"child,omitempty"`
	Request string    `json:"request,omitempty"` // request_id of input.requested; "": the call asks
	Call    string    `json:"call,omitempty"`    // call_id, where it is about a call
	Told    bool      `json:"told,omitempty"`    // its lane was told to cancel: it waits until the turn has ended
	Idle    bool      `json:"idle,omitempty"`    // its turn has ended: it waits until the lane is told to cancel
	Said    uint32    `json:"said,omitempty"`    // sum of what it asks; 0: that is not known
}

// AskEvent is an event that asks, or that ends what was asked before it.
type AskEvent struct {
	Ask
	kind  askKind
	agent bool // an answer of the agent's: it has taken what somebody said
	state RunState
}

// Answer reports whether the event ends questions by answering them.
func (e *AskEvent) Answer() bool { return e.kind == answers }

type askKind uint8

const (
	asks        askKind = iota
	starts              // a call that does not ask
	answers             // names a request or a call
	endsCall            // tool.end
	endsTurn            // any other turn.end
	endsLane            // a turn that was cancelled or has failed, a child's final state
	endsRun             // a final state of the root
	cancelsLane         // command.cancel, of a lane or of the turn of the root
	cancelsRun          // command.cancel of the whole run
	speaks              // message.start: ids of calls may be used again
	turns               // turn.start, command.message, another state that is not final: all ids of the lane may be
)

// AskTypes are the types of which AskEventOf reads events.
var AskTypes = []string{
	TypeInputRequested, TypeInputAnswered, typeCommandAnswer, typeCommandCancel, TypeToolStart, TypeToolEnd, TypeTurnEnd,
	TypeRunLifecycle, TypeMessageStart, TypeCommandMessage, TypeTurnStart,
}

const (
	typeCommandAnswer = commandPrefix + "answer"
	typeCommandCancel = commandPrefix + "cancel"
)

// MayAsk reports whether an event of a type may ask, and MayAnswer that it may end what was asked.
func MayAsk(typ string) bool { return typ == TypeInputRequested || typ == TypeToolStart }

// MayAnswer is described at MayAsk. A request about a call takes the place of what the call asks.
func MayAnswer(typ string) bool {
	switch typ {
	case TypeInputRequested, TypeInputAnswered, typeCommandAnswer, typeCommandCancel, TypeToolEnd, TypeTurnEnd, TypeRunLifecycle:
		return true
	}
	return false
}

// isOfAsks reports whether an event of a type is one of AskTypes: it may ask, end what was asked, or let what
// has ended be asked again.
func isOfAsks(typ string) bool {
	switch typ { // one switch: it is asked of every event
	case TypeInputRequested, TypeInputAnswered, typeCommandAnswer, typeCommandCancel, TypeToolStart, TypeToolEnd, TypeTurnEnd,
		TypeRunLifecycle, TypeMessageStart, TypeCommandMessage, TypeTurnStart:
		return true
	}
	return false
}

// AskWindow is how many events before a new question must be read to know whether it is one, or the repeat of one that
// has ended.
const AskWindow = 1 << 10

// AskEventOf reads an event. ok is false for one that neither asks nor ends anything.
func AskEventOf(seq Seq, ts time.Time, typ, child string, payload []byte) (e AskEvent, ok bool) {
	if !isOfAsks(typ) {
		return e, false
	}
	e, ok = ReadAsk(seq, typ, child, jsonscan.Fields(nil).Read(payload))
	if y := ts.UTC().Year(); y < 1 || y > 9999 {
		ts = time.Unix(0, 0) // no JSON has it
	}
	e.TS = ts.UTC()
	return e, ok
}

// ReadAsk is AskEventOf without the time, for a payload that was read.
func ReadAsk(seq Seq, typ, child string, p jsonscan.Fields) (e AskEvent, ok bool) {
	e.Ask = Ask{Seq: seq, Child: child}
	switch typ {
	case TypeInputRequested:
		e.Request, e.Call = askID(p.Str("request_id")), askID(p.Str("call_id"))
		e.Said = askSum(p.Kind("prompt", '"'), p.Array("options"), p.Object("schema"))
		return e, e.Request != ""
	case TypeToolStart:
		e.Call, e.Said = askID(p.Str("call_id")), askSum(p.Kind("tool", '"'), p.Some("input"))
		if !p.Yes("custom") && cmp.Or(p.Str("permission"), p.Str("evaluated_permission")) != "ask" {
			e.kind = starts
		}
		return e, e.Call != ""
	case TypeToolEnd:
		e.kind, e.Call = endsCall, askID(p.Str("call_id"))
		return e, e.Call != ""
	case TypeTurnEnd:
		if e.kind = endsTurn; turnBroken(ReadStop(p.Str("stop_reason"))) {
			e.kind = endsLane
		}
		return e, true
	case typeCommandCancel:
		if e.kind = cancelsRun; child != "" || p.Yes("interrupt") {
			e.kind = cancelsLane
		}
		return e, true
	case TypeRunLifecycle:
		if e.kind = endsRun; child != "" {
			e.kind = endsLane
		}
		state, reason := RunState(p.Str("state")), p.Raw("reason") // as ParseLifecycle has it
		if e.state = state; !state.Final() {
			e.kind = turns
		}
		return e, state.valid() && (reason == nil || reason[0] == 'n' || reason[0] == '"')
	case TypeMessageStart:
		e.kind = speaks
		return e, true
	case TypeCommandMessage, TypeTurnStart:
		e.kind = turns
		return e, true
	case TypeInputAnswered, typeCommandAnswer:
		e.kind, e.Request, e.agent = answers, askID(p.Str("request_id")), typ == TypeInputAnswered
		return e, e.Request != ""
	}
	return e, false
}

// askSum returns Ask.Said of what asks, of which text is a string. Sums are compared with those of the same id alone.
func askSum(text []byte, parts ...[]byte) uint32 {
	if len(text) >= 2 && bytes.IndexByte(text, '\\') < 0 {
		return sumWords(text[1:len(text)-1], parts...)
	}
	return sumWords([]byte(jsonscan.DecodeString(text)), parts...)
}

// sumWords is FNV-1a of a text and what follows it, each after a zero, and never 0.
func sumWords(text []byte, parts ...[]byte) uint32 {
	h := uint32(2166136261)
	for _, c := range text {
		h = (h ^ uint32(c)) * 16777619
	}
	for _, part := range parts {
		h *= 16777619
		for _, c := range part {
			h = (h ^ uint32(c)) * 16777619
		}
	}
	return h | 1
}

// turnBroken reports whether a turn ended so that answers to its questions are not waited for. One that says that it
// was interrupted is none of those: the question itself has interrupted it, unless a cancel has ended the question
// before.
func turnBroken(s Stop) bool { return s == StopCancelled || s == StopFailed }

// Bounds of what is kept of a run's open questions.
const (
	maxAskID = 128
	// the oldest; when there are more, a list may count a run as one that waits no more although a newer one does
	maxAsks = 256
)

// askID returns an id as questions have it: a long one as a hash.
func askID(s string) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) > maxAskID {
		sum := sha256.Sum256([]byte(s))
		s = hex.EncodeToString(sum[:])
	}
	return s
}

// MergeAsks returns the questions that are open, oldest first, after some more events: open were open before, and
// events are all that ask or end anything from some seq on, whatever of them is in open already. Their order and
// doubles do not matter. open is not changed.
func MergeAsks(open []Ask, events []AskEvent) []Ask {
	all := slices.Clone(events)
	for _, a := range open {
		all = append(all, AskEvent{Ask: a})
	}
	slices.SortStableFunc(all, func(x, y AskEvent) int { return cmp.Compare(x.Seq, y.Seq) })
	all = slices.CompactFunc(all, func(x, y AskEvent) bool { return x.Seq == y.Seq })
	var w Waits
	for i := range all {
		w.Apply(&all[i])
	}
	return w.Oldest()
}

// Oldest returns the questions that are open as MergeAsks does: the oldest ones of many.
func (w *Waits) Oldest() []Ask {
	open := w.Open()
	return open[:min(len(open), maxAsks)]
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
