package schema

import "errors"

// One sentinel for each decision a caller makes. Wrap them with %w and name the id that was meant.
var (
	// ErrBadID reports that a run, child, tenant or event id is not in the allow-list.
	ErrBadID = errors.New("id is not [A-Za-z0-9_-] of the allowed length")
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
	// ErrBadPack reports that a stored message is not a pack: headers or lines do not agree.
	ErrBadPack = errors.New("bad pack")
)
