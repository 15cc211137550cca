package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"agentstream/schema/jsonscan"
	"agentstream/schema/trace"
)

// TimeLayout is how a time that is made here is written: RFC 3339, UTC, milliseconds (native §2).
const TimeLayout = "2006-01-02T15:04:05.000Z07:00"

// MaxEventBytes bounds one encoded event. Larger content belongs in a blob (native §3.4 blob_ref):
// a message of the broker is at most 1 MiB with its headers.
const MaxEventBytes = 512 << 10

// Event is the native envelope (native §2). Zero fields are absent on the wire, except child_id,
// which is null, and payload, which is {}.
//
// Payload and Extra are kept as they came. Their bytes must not be changed once an Event has been
// handed over.
type Event struct {
	ID       string          // evt_ + ULID; minted in log order when empty
	TS       string          // RFC 3339; the producer's clock, for people: order comes from Seq alone
	Type     string          // a name of the catalogue, or custom.*
	RunID    string          // the root run, whose log this is
	ChildID  string          // the child run that emitted it; "" (null) is the root itself
	Seq      Seq             // position in the root run's log
	FirstSeq Seq             // first member, when the event stands for several; 0 means equal to Seq
	TurnID   string          // turn it belongs to
	Path     []string        // run ids from the root to a nested child, both included
	Cause    string          // id of the event that led to this one
	Actor    string          // user, agent, system, tool or worker, where known
	Extra    json.RawMessage // unknown envelope fields: `"name":value,…`, as they came
	Payload  json.RawMessage // an object; {} when empty
}

// Key returns the run's name within a tenant.
func (e *Event) Key(tenant string) RunKey { return RunKey{Tenant: tenant, Run: e.RunID} }

// First returns the seq of the first event that this one stands for.
func (e *Event) First() Seq {
	if e.FirstSeq != 0 {
		return e.FirstSeq
	}
	return e.Seq
}

// AppendLine appends the event as one line of NDJSON without the line feed, in the one field order
// that ScanLine reads: id, ts, type, run_id, child_id, seq, the optional fields, payload.
func (e *Event) AppendLine(dst []byte) []byte {
	dst = append(dst, `{"id":"`...)
	dst = append(dst, e.ID...)
	return e.appendBehindID(dst, e.TS, e.RunID, e.Seq)
}

// AppendNumbered is AppendLine of an event that is being numbered: with this id, time, run and seq
// instead of its own. The event is not changed.
func (e *Event) AppendNumbered(dst, id []byte, ts, run string, seq Seq) []byte {
	dst = append(dst, `{"id":"`...)
	dst = append(dst, id...)
	return e.appendBehindID(dst, ts, run, seq)
}

func (e *Event) appendBehindID(dst []byte, ts, run string, seq Seq) []byte {
	dst = append(dst, `","ts":"`...)
	dst = append(dst, ts...)
	dst = append(dst, `","type":"`...)
	dst = append(dst, e.Type...)
	dst = append(dst, `","run_id":"`...)
	dst = append(dst, run...)
	if e.ChildID == "" {
		dst = append(dst, `","child_id":null,"seq":`...)
	} else {
		dst = append(dst, `","child_id":"`...)
		dst = append(dst, e.ChildID...)
		dst = append(dst, `","seq":`...)
	}
	dst = strconv.AppendInt(dst, int64(seq), 10)
	if e.FirstSeq != 0 && e.FirstSeq != seq {
		dst = append(dst, `,"first_seq":`...)
		dst = strconv.AppendInt(dst, int64(e.FirstSeq), 10)
	}
	if e.TurnID != "" {
		dst = jsonscan.AppendString(append(dst, `,"turn_id":`...), e.TurnID)
	}
	if len(e.Path) > 0 {
		dst = append(dst, `,"path":[`...)
		for i, p := range e.Path {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = jsonscan.AppendString(dst, p)
		}
		dst = append(dst, ']')
	}
	if e.Cause != "" {
		dst = jsonscan.AppendString(append(dst, `,"cause":`...), e.Cause)
	}
	if e.Actor != "" {
		dst = jsonscan.AppendString(append(dst, `,"actor":`...), e.Actor)
	}
	if len(e.Extra) > 0 {
		dst = append(append(dst, ','), e.Extra...)
	}
	dst = append(dst, `,"payload":`...)
	if len(e.Payload) == 0 {
		dst = append(dst, `{}`...)
	} else {
		dst = append(dst, e.Payload...)
	}
	return append(dst, '}')
}

// MarshalJSON returns the line. It never fails.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendLine(nil), nil }

// UnmarshalJSON reads an event leniently in what it accepts as a type and strictly in its form, as
// a reader of a log must (native digest §4.13).
func (e *Event) UnmarshalJSON(data []byte) error {
	ev, err := decodeEvent(data)
	if err != nil {
		return err
	}
	*e = ev
	return nil
}

// DecodeLine reads one stored line. The error wraps ErrMalformed. Unknown types pass: the log may
// be newer than its reader.
func DecodeLine(line []byte) (Event, error) {
	if err := checkJSON(line); err != nil {
		return Event{}, err
	}
	return decodeEvent(line)
}

// DecodeView is DecodeLine for what a stream shows: besides stored lines the types that exist in views
// alone, which hold values out of events and so are nested deeper than any of them.
func DecodeView(line []byte) (Event, error) {
	if err := checkNested(line, maxViewDepth); err != nil {
		return Event{}, err
	}
	return decodeEvent(line)
}

// decodeEvent expects JSON that has passed checkJSON. Payload and Extra are copies.
func decodeEvent(data []byte) (Event, error) {
	var e Event
	if data[jsonscan.SkipSpace(data, 0)] != '{' {
		return e, fmt.Errorf("the event is not a JSON object: %w", ErrMalformed)
	}
	seen := make(map[string]bool, 8)
	err := eachField(data, func(name string, v []byte) error {
		if seen[name] {
			return fmt.Errorf("field %s is given twice: %w", quote(name), ErrMalformed)
		}
		seen[name] = true
		if err := e.setField(name, v); err != nil {
			return fieldError(name, err)
		}
		return nil
	})
	if err != nil {
		return Event{}, err
	}
	if e.Payload == nil {
		e.Payload = json.RawMessage(`{}`)
	}
	return e, nil
}

func (e *Event) setField(name string, v []byte) (err error) {
	if bytes.Equal(v, jsonNull) && name != "payload" && knownField[name] {
		return nil
	}
	switch name {
	case "id":
		e.ID, err = idField(v, ValidEventID)
	case "ts":
		if e.TS, err = unquote(v); err == nil {
			err = validTime(e.TS)
		}
	case "type":
		if e.Type, err = unquote(v); err == nil {
			err = validTypeName(e.Type)
		}
	case "run_id":
		e.RunID, err = idField(v, ValidRunID)
	case "child_id":
		e.ChildID, err = idField(v, ValidRunID)
	case "seq":
		e.Seq, err = parseSeq(v)
	case "first_seq":
		e.FirstSeq, err = parseSeq(v)
	case "turn_id":
		e.TurnID, err = shortText(v)
	case "path":
		e.Path, err = decodePath(v)
	case "cause":
		e.Cause, err = shortText(v)
	case "actor":
		e.Actor, err = shortText(v)
	case "payload":
		if v[0] != '{' {
			return fmt.Errorf("not an object: %w", ErrMalformed)
		}
		e.Payload, err = oneLine(v)
	default:
		e.Extra, err = appendExtra(e.Extra, name, v)
	}
	return err
}

// fieldError returns err with the name of the field that it is about.
func fieldError(name string, err error) error {
	if errors.Is(err, ErrUnknownType) {
		return err // its text names the field
	}
	return fmt.Errorf("field %s is %w", quote(name), err)
}

// idField reads an id, which valid holds to its rule.
func idField(v []byte, valid func(string) error) (string, error) {
	s, err := unquote(v)
	if err == nil && valid(s) != nil {
		err = fmt.Errorf("%s: %w", quote(s), ErrBadID)
	}
	return s, err
}

var knownField = map[string]bool{
	"id": true, "ts": true, "type": true, "run_id": true, "child_id": true, "seq": true,
	"first_seq": true, "turn_id": true, "path": true, "cause": true, "actor": true, "payload": true,
}

func appendExtra(extra json.RawMessage, name string, v []byte) (json.RawMessage, error) {
	line, err := oneLine(v)
	if err != nil {
		return nil, err
	}
	if len(extra) > 0 {
		extra = append(extra, ',')
	}
	extra = append(jsonscan.AppendString(extra, name), ':')
	return append(extra, line...), nil
}

// oneLine copies a value, and only when it holds raw line breaks, which JSON allows between tokens
// alone, removes that white space: a line of the log is one line. String and number text is never
// touched.
func oneLine(v []byte) (json.RawMessage, error) {
	if bytes.IndexByte(v, '\n') < 0 && bytes.IndexByte(v, '\r') < 0 {
		return append(json.RawMessage(nil), v...), nil
	}
	var buf bytes.Buffer
	if err := json.Compact(&buf, v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return buf.Bytes(), nil
}

// maxShortText bounds turn_id, cause and actor, in bytes.
const maxShortText = 256

func shortText(v []byte) (string, error) {
	s, err := unquote(v)
	if err == nil && len(s) > maxShortText {
		err = fmt.Errorf("longer than %d bytes: %w", maxShortText, ErrMalformed)
	}
	return s, err
}

// maxPath bounds the depth of nested children.
const maxPath = 32

func decodePath(v []byte) ([]string, error) {
	var path []string
	if err := json.Unmarshal(v, &path); err != nil {
		return nil, fmt.Errorf("not a list of run ids: %w", ErrMalformed)
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("deeper than %d: %w", maxPath, ErrMalformed)
	}
	for _, p := range path {
		if ValidRunID(p) != nil {
			return nil, fmt.Errorf("a list with %s: %w", quote(p), ErrBadID)
		}
	}
	return path, nil
}

func validTime(s string) error {
	if len(s) > 40 {
		return fmt.Errorf("not an RFC 3339 time: %w", ErrMalformed)
	}
	if _, err := time.Parse(time.RFC3339Nano, s); err != nil || !token(stripTime(s), 40) {
		return fmt.Errorf("not an RFC 3339 time, but %s: %w", quote(s), ErrMalformed)
	}
	return nil
}

// stripTime removes the punctuation of RFC 3339, so that the rest can be held to the allow-list.
func stripTime(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if c := s[i]; c != ':' && c != '.' && c != '+' {
			b = append(b, c)
		}
	}
	return string(b)
}

// One sentinel for each decision a caller makes. Wrap them with %w and name the id that was meant.
var (
	// ErrBadID reports that a run, child, tenant or event id is not in the allow-list.
	ErrBadID = errors.New("it must have 1 to 128 of the characters A-Z a-z 0-9 _ -, a tenant at most 64")
	// ErrBadCursor reports that a resume position is not a sequence number.
	ErrBadCursor = errors.New("cursor is not a sequence number")
	// ErrMalformed reports that bytes are not an event: bad JSON, bad UTF-8, a wrong field.
	// On the wire it is KAI-STREAM-PROTO-0001.
	ErrMalformed = errors.New("malformed event")
	// ErrUnknownType reports that the event type is not in the catalogue and not custom.*.
	// On the wire it is KAI-STREAM-PROTO-0002.
	ErrUnknownType = errors.New("unknown event type")
	// ErrTooLarge reports that an event is over MaxEventBytes or a batch over its bound.
	ErrTooLarge = errors.New("event is too large")
	// ErrForeignRun reports that an event brought the run_id of another run.
	ErrForeignRun = errors.New("event names another run")
	// ErrSeqMismatch reports that an event brought a seq that is not the one it would get.
	ErrSeqMismatch = errors.New("event brings a seq that is not the next one")
	// ErrEnded reports that the run has reached a final state and takes only a follow-up, and what is about its session.
	ErrEnded = errors.New("run has ended")
	// ErrConflict reports that another writer was first; nothing was stored. Read the head, number
	// anew, try again.
	ErrConflict = errors.New("another writer was first")
	// ErrUnanswered reports that the answer to a publish was lost: it may or may not be stored.
	ErrUnanswered = errors.New("publish was not answered")
	// ErrUnavailable reports that the log neither stores nor answers now (no leader, too busy).
	ErrUnavailable = errors.New("log is unavailable")
	// ErrFull reports that the log has no room for what was to be stored; nothing of it was. It will not end by
	// itself in a moment, as ErrUnavailable does.
	ErrFull = errors.New("log is full")
	// ErrSetup reports that the log is not set up to store what was to be stored: it lacks the stream, or its servers take
	// no message of that size. Nothing of it was stored, and somebody has to see to it. It stands beside ErrUnavailable.
	ErrSetup = errors.New("log is not set up for it")
	// ErrKeyGone reports that content is sealed with a key of the tenant that there is not, or not any more: nobody can read it,
	// and nothing more is stored for the tenant. Waiting does not end it.
	ErrKeyGone = errors.New("the tenant's key is gone, or was never made")
	// ErrBadPack reports that a stored message is not a pack: headers or lines do not agree.
	ErrBadPack = errors.New("bad pack")
)

// ExtraObject returns the unknown fields of the envelope as a JSON object, in bytes of its own.
func (e *Event) ExtraObject() []byte { return slices.Concat([]byte{'{'}, e.Extra, []byte{'}'}) }

// traceBytes is what a trace adds to an event's line: `,"trace":"…"`.
const traceBytes = 70

// WithTrace returns the event with a traceparent in the field trace of its envelope, as trace.Of returns one. An event
// stays as it is that has that field, that is a delta, of which there are many, or that would be too large.
func (e *Event) WithTrace(parent string) Event {
	out := *e
	info, err := Lookup(e.Type)
	if err != nil || info.Delta || e.size()+traceBytes > MaxEventBytes || e.trace() != nil {
		return out
	}
	out.Extra = slices.Clone(e.Extra)
	if len(out.Extra) > 0 {
		out.Extra = append(out.Extra, ',')
	}
	out.Extra = jsonscan.AppendString(append(out.Extra, `"`+trace.Field+`":`...), parent)
	return out
}

// Trace returns the traceparent with which the event came, in the form of trace.Of; "" when it has none, or what it has
// is none.
func (e *Event) Trace() string {
	parent, _ := jsonscan.Unquote(e.trace()) // what is no string is no traceparent
	p, ok := trace.Parse(parent)
	if !ok {
		return ""
	}
	return p.String()
}

// trace returns the field trace of the envelope as it stands, nil when there is none.
func (e *Event) trace() []byte {
	if len(e.Extra) == 0 {
		return nil
	}
	return Field(e.ExtraObject(), trace.Field)
}
