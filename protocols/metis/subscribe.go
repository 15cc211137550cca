package metis

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// MaxReplay bounds the matching events that a client may have missed (3.6). Of more it needs a snapshot.
const MaxReplay = 10_000

// Filter selects the events of a session that a client wants. It is a predicate over type, actor and worker alone.
type Filter struct {
	Types   []string `json:"event_types"`             // sorted, without doubles; nil: all, also those of no family
	Actors  []string `json:"actors"`                  // user, agent, system, tool, worker; in the same way
	Workers bool     `json:"include_worker_sessions"` // with the sessions of workers below
}

// Subscribe is a client's first message (3.2).
type Subscribe struct {
	Filter   Filter
	Since    string // id of an event; "": none
	Snapshot bool   // send a snapshot first; Since is not used then
}

// Chat is what preset:chat stands for. preset:full is the zero Filter.
func Chat() Filter {
	types := names(func(e entry) bool { return e.chat })
	slices.Sort(types)
	return Filter{Types: types}
}

// ParseSubscribe reads a subscribe message, whose type its caller has read. The error is an *Error with
// CodeInvalidFilter, which names what is wrong.
func ParseSubscribe(message []byte) (s Subscribe, err error) {
	var m struct {
		Filter   json.RawMessage `json:"filter"`
		Since    string          `json:"since"`
		Snapshot bool            `json:"snapshot"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return s, Refuse(CodeInvalidFilter, "since is an event's id or null, and snapshot true or false")
	}
	s.Since, s.Snapshot = m.Since, m.Snapshot
	switch preset := text(m.Filter); {
	case preset == "preset:chat":
		s.Filter = Chat()
	case preset == "preset:full":
	case preset != "":
		return s, Refuse(CodeInvalidFilter, "%s is no preset: preset:chat and preset:full are", quoteWord(preset))
	default:
		s.Filter, err = parseFilter(m.Filter)
	}
	return s, err
}

func parseFilter(raw json.RawMessage) (f Filter, err error) {
	wrong := new(json.UnmarshalTypeError)
	switch err := json.Unmarshal(raw, &f); {
	case errors.As(err, &wrong) && wrong.Field != "":
		return f, Refuse(CodeInvalidFilter, "%s is not what it must be: a list of names or null, or true or false",
			wrong.Field)
	case err != nil || string(raw) == "null":
		return f, Refuse(CodeInvalidFilter, "filter is neither an object nor a preset")
	}
	if f.Types, err = choices("event_types", f.Types, func(s string) bool { return kindOf(s) != own }); err == nil {
		f.Actors, err = choices("actors", f.Actors, func(s string) bool { return slices.Contains(actors[:], s) })
	}
	return f, err
}

// MaxChoices bounds the names of a list of a filter: there are fewer that differ.
const MaxChoices = 2 * dialect.MaxList

// choices checks and sorts names.
func choices(field string, list []string, known func(string) bool) ([]string, error) {
	if len(list) > MaxChoices {
		return nil, Refuse(CodeInvalidFilter, "%s has more than %d names", field, MaxChoices)
	}
	for _, s := range list {
		if !known(s) {
			return nil, Refuse(CodeInvalidFilter, "unknown name in %s: %s", field, quoteWord(s))
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// quoteWord quotes a client's word for a message.
func quoteWord(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

// AppendAck appends the subscribe_ack: presets are written out, null stays null. replay is how many events are behind
// Since.
func (s Subscribe) AppendAck(dst []byte, replay int64) []byte {
	filter, _ := json.Marshal(s.Filter) // names and flags always encode
	o := append(jsonscan.Object(dst), '{').Str("type", "subscribe_ack").Raw("resolved_filter", filter).NullStr("since",
		s.Since)
	return o.Bool("snapshot", s.Snapshot).Int("replay_event_count", replay).End()
}

// Request returns the request for a session, which is a run or a child of one. Without Since it begins with the newest
// event. The error wraps schema.ErrBadID, or is an *Error with CodeCursorExpired for what is no event's id; whether the
// id is of this session, Projector.Admit decides.
func (s Subscribe) Request(session string) (dialect.Request, error) {
	req := EventsRequest(session, s.Filter)
	if err := schema.ValidRunID(session); err != nil {
		return req, err
	}
	if s.Since == "" || s.Snapshot {
		req.Newest = true
		return req, nil
	}
	at, ok := placeOf(s.Since)
	if !ok {
		return req, Refuse(CodeCursorExpired, "since is not an event of this session")
	}
	req.Cursor = dialect.Cursor{Place: at, ID: s.Since}
	return req, nil
}

// EventsRequest returns the request for the events of a session that a filter shows, from its first one on.
func EventsRequest(session string, f Filter) dialect.Request {
	return dialect.Request{Run: session, Stream: StreamName, Form: formEvents, Select: f.of(session)}
}

// MessagesRequest returns the request for the messages of a session: a frame for each message that is complete, whose
// Data is the message and whose Token its id. The message of a frame may have begun with a record before.
func MessagesRequest(session string) dialect.Request {
	return dialect.Request{Run: session, Stream: StreamName, Form: formMessages}
}

// Forms of requests.
const (
	formEvents   = "events"
	formMessages = "messages"
)

// selection is a filter of one session's events. The Kind of a frame is its type and its actor, the Lane the ids from
// the run to the frame's session.
type selection struct {
	session, key string
	types        []bool // by kind; nil: all
	actors       [len(actors)]bool
	workers      bool
}

var _ dialect.Selection = (*selection)(nil)

func (f Filter) of(session string) *selection {
	key, _ := json.Marshal(f)
	s := &selection{session: session, key: session + string(key), workers: f.Workers}
	if f.Types != nil {
		s.types = make([]bool, len(catalogue))
		for _, name := range f.Types {
			s.types[kindOf(name)] = true
		}
	}
	for i, name := range actors {
		s.actors[i] = f.Actors == nil || slices.Contains(f.Actors, name)
	}
	return s
}

func (s *selection) Key() string { return s.key }

func (s *selection) Match(f *dialect.Frame) bool {
	return s.has(kind(f.Kind>>3), actor(f.Kind&7)) && inLane(f.Lane, s.session, s.workers)
}

// has reports whether a type by an actor is shown.
func (s *selection) has(k kind, a actor) bool { return s.actors[a] && (s.types == nil || s.types[k]) }

// inLane reports whether a lane is that of a session or, with those below, below it.
func inLane(lane []byte, session string, below bool) bool {
	for len(lane) > 0 {
		id, rest, nested := bytes.Cut(lane, []byte{'/'})
		if string(id) == session && (below || !nested) {
			return true
		}
		lane = rest
	}
	return false
}
