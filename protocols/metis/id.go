package metis

import (
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Prefixes of ids. What is behind them is a dialect.Place.
const (
	eventPrefix   = "evt_"
	turnPrefix    = "turn_"
	messagePrefix = "msg_"
)

// EventID returns the id of the event at a place of a root run.
func EventID(run string, at dialect.Place) string { return idOf(eventPrefix, run, at) }

// TurnID returns the id of the turn that the record at seq begins: a command.message, where a client has asked for the
// turn, so that the answer to that client has it before anything streams. run is the root run, also for a turn of a
// child.
func TurnID(run string, seq schema.Seq) string { return idOf(turnPrefix, run, dialect.Place{Seq: seq}) }

// MessageID returns the id of the message that the record at seq begins. run is the root run.
func MessageID(run string, seq schema.Seq) string {
	return idOf(messagePrefix, run, dialect.Place{Seq: seq})
}

// ParseEventID returns the place of an event. The error wraps schema.ErrBadCursor for what is no id of the run's
// events.
func ParseEventID(run, id string) (dialect.Place, error) { return parseID(eventPrefix, run, id) }

// ParseTurnID returns the seq of the record that began a turn. The error is that of ParseEventID.
func ParseTurnID(run, id string) (schema.Seq, error) {
	at, err := parseID(turnPrefix, run, id)
	return at.Seq, err
}

// ParseMessageID returns the seq of the record that began a message. The error is that of ParseEventID.
func ParseMessageID(run, id string) (schema.Seq, error) {
	at, err := parseID(messagePrefix, run, id)
	return at.Seq, err
}

func idOf(prefix, run string, at dialect.Place) string { return string(appendID(nil, prefix, run, at)) }

func appendID(dst []byte, prefix, run string, at dialect.Place) []byte {
	return at.AppendID(append(dst, prefix...), run)
}

func parseID(prefix, run, id string) (dialect.Place, error) {
	if len(id) < len(prefix) || id[:len(prefix)] != prefix {
		return dialect.Place{}, dialect.Refuse(schema.ErrBadCursor, "not an id of this session")
	}
	return dialect.ParsePlace(run, id[len(prefix):])
}

// placeOf returns the place of an event of whatever run; ok is false for what is no event's id.
func placeOf(id string) (dialect.Place, bool) {
	digits, ok := strings.CutPrefix(id, eventPrefix)
	if !ok {
		return dialect.Place{}, false
	}
	return dialect.PlaceOf(digits)
}
