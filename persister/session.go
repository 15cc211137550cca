package persister

import (
	"cmp"
	"encoding/json"
	"slices"

	"agentstream/schema"
)

// SessionEvent is an event of the family session of a run's root, as schema.MergeSession reads it.
type SessionEvent struct {
	Seq     schema.Seq
	Type    string
	TS      string // as the line has it
	Payload []byte // part of the line
}

// SessionTypes are the types of SessionEvents.
var SessionTypes = []string{schema.TypeSessionCreated, schema.TypeSessionUpdated, schema.TypeSessionArchived, schema.TypeSessionDeleted}

// IsSession reports whether events of a type say what a session is.
func IsSession(typ string) bool {
	switch typ {
	case schema.TypeSessionCreated, schema.TypeSessionUpdated, schema.TypeSessionArchived, schema.TypeSessionDeleted:
		return true
	}
	return false
}

// SessionEventOf reads a line of the log. ok is false for one that cannot be read.
func SessionEventOf(seq schema.Seq, typ string, line []byte) (e SessionEvent, ok bool) {
	r, err := schema.ScanLine(line)
	if err != nil {
		return e, false
	}
	_, ts, _ := r.Envelope()
	return SessionEvent{seq, typ, string(ts), r.Payload()}, true
}

// Session is what a store keeps of a session beside its events. The zero Session is of a run that is none.
type Session struct {
	Description json.RawMessage // of schema.MergeSession; nil: no event has said anything
	Seq         schema.Seq      // newest event in it
}

// Late reports whether some of the events come before what is merged already. Then those behind the first of them must
// be merged again, which Merge is given as well.
func (s *Session) Late(events []SessionEvent) bool {
	return slices.ContainsFunc(events, func(e SessionEvent) bool { return e.Seq < s.Seq })
}

// Merge takes events that have not been merged, and with Late all of the run behind the first of them. Their order
// and doubles do not matter.
func (s *Session) Merge(events []SessionEvent) {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(x, y SessionEvent) int { return cmp.Compare(x.Seq, y.Seq) })
	for i := range events {
		e := &events[i]
		s.Description = schema.MergeSession(s.Description, e.Type, e.TS, e.Payload)
		s.Seq = max(s.Seq, e.Seq)
	}
}
