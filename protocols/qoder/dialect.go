package qoder

import (
	"fmt"
	"slices"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Dialect speaks the protocol. The zero value is ready.
type Dialect struct {
	// Increments is the setting of runs that were not created as sessions, and so were never asked for one.
	Increments bool
}

var _ dialect.Dialect = Dialect{}

// Bases of the protocol's paths: Qoder's own, that of the clients which put /v1 before every path, and both, for
// such clients with Qoder's base URL.
const (
	BaseCloud   = "/api/v1/cloud"
	BaseV1      = "/v1"
	BaseDoubled = BaseCloud + BaseV1
)

// Bases returns them all.
func Bases() []string { return []string{BaseCloud, BaseV1, BaseDoubled} }

// Info names the protocol. Where its streams are served, its registration says.
func (Dialect) Info() dialect.Info { return dialect.Info{Name: "qoder"} }

// Open reads which session or thread is asked for, from where, and with which previews.
//
// Without Last-Event-ID a stream begins with the session's first event; on paths below /v1 with the next one,
// which is what clients of those expect, unless ?replay=history asks for all (and ?replay=live for none).
func (Dialect) Open(in dialect.Input) (req dialect.Request, err error) {
	req.Run, req.Stream = in.Path["run"], in.Stream
	if err := schema.ValidRunID(req.Run); err != nil {
		return req, fmt.Errorf("%w: %s", dialect.ErrNotFound, err) // no session has such an id
	}
	f := form{thread: in.Path["thread"]}
	if f.previews, err = previewsOf(in.Query["event_deltas[]"]); err != nil {
		return req, err
	}
	req.Form = f.key()
	req.Newest = strings.HasSuffix(in.Stream, BaseV1)
	switch in.Query.Get("replay") {
	case "":
	case "history":
		req.Newest = false
	case "live":
		req.Newest = true
	default:
		return req, dialect.Refuse(dialect.ErrBadRequest, "replay is neither history nor live")
	}
	switch ids := in.Header.Values("Last-Event-ID"); {
	case len(ids) > 1:
		return req, dialect.Refuse(schema.ErrBadCursor, "Last-Event-ID is given %d times", len(ids))
	case len(ids) == 1 && ids[0] != "":
		req.Cursor, err = CursorOf(req.Run, ids[0])
	}
	return req, err
}

// CursorOf is the place behind an event's frame. The error wraps schema.ErrBadCursor for what is no id of this
// session's events.
func CursorOf(session, id string) (dialect.Cursor, error) {
	seq, slot, err := parseID(session, id)
	return dialect.Cursor{Seq: seq, Token: id, Later: slot >= slotLater}, err
}

// Request is what the history of a session, or of one thread ("" for none), is projected for.
func Request(session, thread string) dialect.Request {
	return dialect.Request{Run: session, Form: form{thread: thread}.key()}
}

// form is what decides, beside the log, which frames a client gets.
type form struct {
	thread   string // id of the thread; "": the session
	previews previews
	silent   bool // nobody in particular
}

func (f form) key() string { return fmt.Sprintf("%s/%d", f.thread, f.previews) }

func parseForm(key string) form {
	if key == "" {
		return form{silent: true}
	}
	var f form
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		f.thread = key[:i]
		_, _ = fmt.Sscan(key[i+1:], &f.previews)
	}
	return f
}

// previews are the kinds of events of which a connection gets pieces as they come (qoder §2).
type previews uint8

const (
	previewMessage previews = 1 << iota
	previewThinking
)

// maxPreviews bounds how often event_deltas[] may be given (qoder §2).
const maxPreviews = 100

func previewsOf(values []string) (p previews, err error) {
	if len(values) > maxPreviews {
		return 0, dialect.Refuse(dialect.ErrBadRequest, "event_deltas[] is given more than %d times", maxPreviews)
	}
	for _, v := range values {
		i := slices.Index([]string{"agent.message", "agent.thinking"}, v)
		if i < 0 {
			return 0, dialect.Refuse(dialect.ErrBadRequest, "event_deltas[] is neither agent.message nor agent.thinking")
		}
		p |= 1 << i
	}
	return p, nil
}

// Projector returns one that has seen nothing yet.
func (d Dialect) Projector(req dialect.Request) dialect.Projector {
	return newProjector(d, req)
}
