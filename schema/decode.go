package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"agentstream/schema/jsonscan"
)

// BatchError reports which event of a batch was refused. Err wraps one of the sentinels.
type BatchError struct {
	Line int // line of the body for NDJSON, position in the list for a JSON array; from 1
	Err  error
}

// Error returns the line and the reason.
func (e *BatchError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the reason.
func (e *BatchError) Unwrap() error { return e.Err }

// DecodeBatch reads the events that a producer sends for one run: NDJSON, a JSON array, or one JSON
// object. Each is checked as by CheckNew. It is all or nothing: the first bad event refuses the
// batch, with a *BatchError. A body without events wraps ErrMalformed. Payloads may be parts of body, which
// must not be changed while the events are used.
func DecodeBatch(run string, body []byte) ([]Event, error) { return AppendBatch(nil, run, body) }

// AppendBatch is DecodeBatch behind what dst holds. With an error it returns dst as it was.
func AppendBatch(dst []Event, run string, body []byte) ([]Event, error) {
	events := dst
	if n := min(bytes.Count(body, []byte{'\n'}), MaxPackEvents); n > 1 {
		events = slices.Grow(events, n)
	}
	add := func(line int, raw []byte) error {
		e, ok := scanNew(run, raw)
		if !ok {
			var err error
			if e, err = decodeNew(run, raw); err != nil {
				return &BatchError{Line: line, Err: err}
			}
		}
		events = append(events, e)
		return nil
	}
	err := eachDocument(body, add)
	if err == nil && len(events) == len(dst) {
		err = &BatchError{Line: 1, Err: fmt.Errorf("there is no event in it: %w", ErrMalformed)}
	}
	if err != nil {
		clear(events[len(dst):])
		return dst, err
	}
	return events, nil
}

// eachDocument calls fn with each event's bytes and its line (NDJSON) or position (array).
func eachDocument(body []byte, fn func(int, []byte) error) error {
	start := jsonscan.SkipSpace(body, 0)
	if start < len(body) && body[start] == '[' {
		if err := checkJSON(body); err != nil {
			return &BatchError{Line: 1, Err: err}
		}
		n := 0
		for raw := range jsonscan.Elements(body) {
			n++
			if err := fn(n, raw); err != nil {
				return err
			}
		}
		return nil
	}
	if isObject := start < len(body) && body[start] == '{'; isObject && bytes.IndexByte(body[start:], '\n') >= 0 {
		first, _, _ := bytes.Cut(body[start:], []byte{'\n'})
		if !jsonscan.Valid(first, maxDepth) && !json.Valid(first) && json.Valid(body) {
			// one object, printed over several lines
			return fn(1, body[start:])
		}
	}
	line := 0
	for len(body) > 0 {
		line++
		raw, rest, _ := bytes.Cut(body, []byte{'\n'})
		body = rest
		if raw = bytes.TrimSuffix(raw, []byte{'\r'}); len(raw) == 0 {
			continue
		}
		if err := fn(line, raw); err != nil {
			return err
		}
	}
	return nil
}

// decodeNew reads one event on its way into the log.
func decodeNew(run string, raw []byte) (Event, error) {
	if len(raw) > MaxEventBytes {
		return Event{}, fmt.Errorf("%w: %d bytes, %d allowed", ErrTooLarge, len(raw), MaxEventBytes)
	}
	if err := checkJSON(raw); err != nil {
		return Event{}, fmt.Errorf("the event is %w", err)
	}
	e, err := decodeEvent(raw)
	if err != nil {
		return Event{}, err
	}
	if err := e.CheckNew(run); err != nil {
		return Event{}, err
	}
	return e, nil
}

// CheckNew reports whether an event may enter the log of run: its type is catalogued or custom.*, its
// names are in the allow-list, a run_id that it brings is this run's, it does not claim to stand
// for others, its payload has what its type cannot do without, and it is not too large. Payload and
// Extra must be valid JSON already. Empty ID, TS, RunID and Seq are filled in later.
func (e *Event) CheckNew(run string) error {
	info, err := Lookup(e.Type)
	if err != nil {
		return err
	}
	if e.RunID != "" && e.RunID != run {
		return fmt.Errorf("%w: %s in the log of %s", ErrForeignRun, quote(e.RunID), quote(run))
	}
	if e.FirstSeq != 0 {
		return fmt.Errorf("first_seq belongs to views: %w", ErrMalformed)
	}
	if e.ChildID != "" {
		if err := ValidRunID(e.ChildID); err != nil {
			return err
		}
		if e.ChildID == run {
			return fmt.Errorf("child_id is the run itself: %w", ErrMalformed)
		}
	}
	if e.ID != "" {
		if err := ValidEventID(e.ID); err != nil {
			return err
		}
	}
	if e.TS != "" {
		if err := validTime(e.TS); err != nil {
			return fieldError("ts", err)
		}
	}
	if err := e.checkOptional(); err != nil {
		return err
	}
	if n := e.size(); n > MaxEventBytes {
		return fmt.Errorf("%w: %d bytes, %d allowed", ErrTooLarge, n, MaxEventBytes)
	}
	return checkPayload(info, e.Payload)
}

// Prepare is CheckNew for an event that was made in this process: it also makes sure that Payload and
// Extra are valid JSON on one line, which DecodeBatch has done for those that came from outside.
func (e *Event) Prepare(run string) error {
	if e.plainDelta(run) {
		return nil
	}
	return e.prepare(run)
}

// prepare is Prepare for all events: it checks each field and names the fault.
func (e *Event) prepare(run string) error {
	if err := e.CheckNew(run); err != nil {
		return err
	}
	if len(e.Payload) > 0 {
		if err := checkJSON(e.Payload); err != nil {
			return fieldError("payload", err)
		}
		if hasLineBreak(e.Payload) {
			line, err := oneLine(e.Payload)
			if err != nil {
				return fieldError("payload", err)
			}
			e.Payload = line
		}
	}
	if len(e.Extra) == 0 {
		return nil
	}
	whole := e.ExtraObject()
	if err := checkJSON(whole); err != nil || bytes.ContainsAny(e.Extra, "\r\n") {
		return fmt.Errorf("extra fields are not JSON on one line: %w", ErrMalformed)
	}
	return eachField(whole, func(name string, _ []byte) error {
		if knownField[name] {
			return fmt.Errorf("extra field %s is of the envelope: %w", quote(name), ErrMalformed)
		}
		return nil
	})
}

// checkOptional holds events that were not decoded to what the decoder holds them to: a line that
// enters the log must be one that its readers take.
func (e *Event) checkOptional() error {
	for _, s := range [...]string{e.TurnID, e.Cause, e.Actor} {
		if len(s) > maxShortText {
			return fmt.Errorf("turn_id, cause or actor is longer than %d bytes: %w", maxShortText, ErrMalformed)
		}
	}
	if len(e.Path) > maxPath {
		return fmt.Errorf("path is deeper than %d: %w", maxPath, ErrMalformed)
	}
	for _, p := range e.Path {
		if err := ValidRunID(p); err != nil {
			return err
		}
	}
	return nil
}

// size bounds the encoded length from above for events made here. An escape is six bytes at most.
func (e *Event) size() int {
	n := 512 + len(e.Payload) + len(e.Extra) + len(e.ChildID) + len(e.RunID)
	n += 6 * (len(e.TurnID) + len(e.Cause) + len(e.Actor))
	for _, p := range e.Path {
		n += len(p) + 3
	}
	return n
}

// Size returns a bound on the encoded length, in bytes.
func (e *Event) Size() int { return e.size() }

// checkPayload makes sure of what this product itself reads: the text of deltas, the state of a
// lifecycle event. The edge checks control events against the whole JSON Schema; deltas are too
// many for that.
func checkPayload(info TypeInfo, payload []byte) error {
	if len(payload) == 0 || payload[0] != '{' {
		if len(payload) == 0 && !info.Delta && info.Name != TypeRunLifecycle {
			return nil
		}
		return fmt.Errorf("the payload of %s is not an object: %w", info.Name, ErrMalformed)
	}
	if info.Name == TypeRunLifecycle {
		_, err := ParseLifecycle(payload)
		return err
	}
	if !info.Delta || info.Family == FamilyData {
		return nil
	}
	found := false
	err := eachRawField(payload, func(name, v []byte) error {
		if n := len(name) - 1; n > 0 && name[0] == '"' && bytes.IndexByte(name, '\\') < 0 {
			if string(name[1:n]) == "text" {
				found = v[0] == '"'
			}
			return nil
		}
		plain, err := unquote(name)
		if plain == "text" {
			found = v[0] == '"'
		}
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("the payload of %s has no text: %w", info.Name, ErrMalformed)
	}
	return err
}

// Code returns the error code of the protocol for a refused event: KAI-STREAM-PROTO-0002 for an unknown
// type, KAI-STREAM-PROTO-0001 for everything else that is wrong with it (native §8).
func Code(err error) string {
	if errors.Is(err, ErrUnknownType) {
		return CodeUnknownType
	}
	return CodeMalformed
}

// Codes of native §8.
const (
	CodeClientGone    = "KAI-STREAM-CONN-0001"
	CodeCursorExpired = "KAI-STREAM-CONN-0002"
	CodeMalformed     = "KAI-STREAM-PROTO-0001"
	CodeUnknownType   = "KAI-STREAM-PROTO-0002"
	CodeDropped       = "KAI-STREAM-BUF-0001"
)

// Codes of tool.end (native §3.4). Producers may use others.
const (
	CodeToolFailed    = "KAI-TOOL-FAIL-0001"   // the tool reported it
	CodeToolRefused   = "KAI-TOOL-DENY-0001"   // a person did not let it run
	CodeToolCancelled = "KAI-TOOL-CANCEL-0001" // it was ended before its time, by a request
	CodeToolLost      = "KAI-TOOL-LOST-0001"   // its result is unknown: its agent is gone, or nothing was recorded
)

// Address is where a line that names its run goes, and how its repeat is recognised.
type Address struct {
	Run []byte // a valid id; a part of the line
	Key string // what the line has as its key; "" for none
	ID  []byte // of the event, unchecked; a part of the line; nil for none
	Seq Seq    // that the event brings; 0 for none
}

// Errors of ReadAddress, which wrap ErrMalformed.
var (
	ErrNoObject = fmt.Errorf("the line is not a JSON object: %w", ErrMalformed)
	ErrNoRun    = fmt.Errorf("run_id is missing: %w", ErrMalformed)
)

// ReadAddress reads the address of one event on a line of its own. "key", which is not the event's, is overwritten with
// spaces in line. All else is left to DecodeBatch. The error wraps ErrNoObject, ErrNoRun, ErrBadID or ErrMalformed.
func ReadAddress(line []byte) (a Address, err error) {
	if i := jsonscan.SkipSpace(line, 0); i == len(line) || line[i] != '{' || !jsonscan.Valid(line, maxDepth) {
		return a, ErrNoObject
	}
	key, end, twice := []byte(nil), 0, false // the member's name, where it ends, whether there are two
	_ = eachRawField(line, func(name, value []byte) error {
		if string(name) == `"key"` {
			twice = twice || key != nil
			key, end = name, cap(line)-cap(value)+len(value) // both are parts of line
		}
		if fault := a.set(name, value); err == nil {
			err = fault
		}
		return nil
	})
	switch {
	case twice:
		return a, fmt.Errorf("field \"key\" is given twice: %w", ErrMalformed)
	case err == nil && a.Run == nil:
		err = ErrNoRun
	}
	if key != nil {
		blank(line, cap(line)-cap(key), end)
	}
	return a, err
}

// set reads one member. What is wrong with others than run_id and key, DecodeBatch says.
func (a *Address) set(name, value []byte) (err error) {
	switch string(name) {
	case `"run_id"`:
		if a.Run, err = plainID(value); err != nil {
			return fieldError("run_id", err)
		}
	case `"key"`:
		if a.Key, err = unquote(value); err == nil && a.Key == "" {
			err = fmt.Errorf("empty: %w", ErrMalformed)
		}
		if err != nil {
			return fieldError("key", err)
		}
	case `"id"`:
		if value[0] == '"' {
			a.ID = value[1 : len(value)-1]
		}
	case `"seq"`:
		a.Seq, _ = parseSeq(value)
	}
	return nil
}

// plainID returns the id of a run in a JSON value.
func plainID(value []byte) ([]byte, error) {
	if value[0] != '"' {
		return nil, fmt.Errorf("not a string: %w", ErrMalformed)
	}
	id := value[1 : len(value)-1]
	for _, c := range id {
		if !tokenByte[c] {
			return id, fmt.Errorf("%s: %w", quote(string(id)), ErrBadID)
		}
	}
	if len(id) == 0 || len(id) > MaxRunID || len(id) == 1 && string(id) == RootLane {
		return id, fmt.Errorf("%s: %w", quote(string(id)), ErrBadID)
	}
	return id, nil
}

// blank overwrites the member line[from:to], and the comma that divides it from another.
func blank(line []byte, from, to int) {
	if i := jsonscan.SkipSpace(line, to); line[i] == ',' {
		to = i + 1
	} else {
		for i = from - 1; line[i] != '{' && line[i] != ','; i-- {
		}
		if line[i] == ',' {
			from = i
		}
	}
	for ; from < to; from++ {
		line[from] = ' '
	}
}
