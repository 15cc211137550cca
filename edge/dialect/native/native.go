package native

import (
	"fmt"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Dialect speaks the protocol. The zero value is ready.
type Dialect struct{}

var _ dialect.Dialect = Dialect{}

// Info names the one stream.
func (Dialect) Info() dialect.Info {
	return dialect.Info{Name: "native", Streams: []dialect.Stream{{
		Name: "run", Pattern: "GET /v1/agent/runs/{run}/stream", Transport: dialect.SSE, Mode: dialect.ModeB,
	}}}
}

// Open reads run, cursor and detail.
func (Dialect) Open(in dialect.Input) (dialect.Request, error) {
	req := dialect.Request{Run: in.Path["run"], Stream: in.Stream}
	if err := schema.ValidRunID(req.Run); err != nil {
		return dialect.Request{}, err
	}
	var err error
	if req.Cursor, err = readCursor(in); err != nil {
		return dialect.Request{}, err
	}
	if req.Detail, err = readDetail(in); err != nil {
		return dialect.Request{}, err
	}
	return req, nil
}

// readCursor takes Last-Event-ID before ?after=: on a reconnect the browser repeats the URL of the
// first request and adds the header, which is the newer of the two.
func readCursor(in dialect.Input) (dialect.Cursor, error) {
	header, err := single("Last-Event-ID", in.Header.Values("Last-Event-ID"))
	if err != nil {
		return dialect.Cursor{}, err
	}
	query, err := single("after", in.Query["after"])
	if err != nil {
		return dialect.Cursor{}, err
	}
	text := header
	if text == "" {
		text = query
	}
	if strings.HasPrefix(text, schema.EventPrefix) && schema.ValidEventID(text) == nil {
		return dialect.Cursor{ID: text}, nil
	}
	seq, err := schema.ParseCursor(text)
	return dialect.Cursor{Seq: seq}, err
}

// readDetail knows the header as well, for clients that cannot change the URL (native §4 R2).
func readDetail(in dialect.Input) (dialect.Detail, error) {
	text := in.Query.Get("detail")
	if text == "" {
		text = in.Header.Get("Detail")
	}
	switch text {
	case "":
		return dialect.DetailDefault, nil
	case "full":
		return dialect.DetailFull, nil
	}
	return 0, fmt.Errorf("detail is neither absent nor full: %w", dialect.ErrBadRequest)
}

// single refuses a cursor that is given twice: which one is meant decides what the client misses.
func single(name string, values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", fmt.Errorf("%s is given %d times: %w", name, len(values), schema.ErrBadCursor)
}

// Projector gives raw detail for every request: the log is already in this protocol.
func (Dialect) Projector(dialect.Request) dialect.Projector { return projector{} }

// AppendError writes {"error":{…}}.
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte { return p.AppendJSON(dst) }

type projector struct{}

// Project makes one frame of the record's own bytes.
func (projector) Project(out *dialect.Frames, r schema.Record) error {
	out.Add(dialect.Frame{Event: r.Type, Data: r.Line, Token: out.Number(int64(r.Seq))})
	return nil
}
