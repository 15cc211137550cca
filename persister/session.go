package persister

import (
	"cmp"
	"encoding/json"
	"slices"

	"agentstream/schema"
)

// SessionEvent is a session event of a run's root, with the arguments of schema.MergeSession.
type SessionEvent struct {
	Seq     schema.Seq
	Type    string
	TS      string // as in the line
	Payload []byte // part of the line
}

// IsSession reports whether typ is the type of a SessionEvent.
func IsSession(typ string) bool {
	switch typ {
	case schema.TypeSessionCreated, schema.TypeSessionUpdated, schema.TypeSessionArchived, schema.TypeSessionDeleted:
		return true
	}
	return false
}

// SessionEventOf decodes a line of the log. ok is false for a line that cannot be decoded.
func SessionEventOf(seq schema.Seq, typ string, line []byte) (e SessionEvent, ok bool) {
	r, err := schema.ScanLine(line)
	if err != nil {
		return e, false
	}
	_, ts, _ := r.Envelope()
	return SessionEvent{seq, typ, string(ts), r.Payload()}, true
}

// Session is what a store keeps of a session beside its events. The zero Session belongs to a run that is no session.
type Session struct {
	Description json.RawMessage // of schema.MergeSession; nil: there was no session event
	Seq         schema.Seq      // newest event merged
}

// Late reports whether some of the events precede events that are merged already. Then the caller must pass Merge all
// events after the first of them.
func (s *Session) Late(events []SessionEvent) bool {
	return slices.ContainsFunc(events, func(e SessionEvent) bool { return e.Seq < s.Seq })
}

// Merge merges events that have not been merged, and if Late all events of the run after the first of them. They may be
// in any order and may be repeated.
func (s *Session) Merge(events []SessionEvent) {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(x, y SessionEvent) int { return cmp.Compare(x.Seq, y.Seq) })
	for i := range events {
		e := &events[i]
		s.Description = schema.MergeSession(s.Description, e.Type, e.TS, e.Payload)
		s.Seq = max(s.Seq, e.Seq)
	}
}
