package native

import (
	"cmp"
	_ "embed"
	"slices"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// Dialect speaks the protocol. The zero value is ready.
type Dialect struct{}

var (
	_ dialect.Dialect    = Dialect{}
	_ dialect.Publishing = Dialect{}
)

// Names of the streams. They differ in what carries them and in nothing else.
const (
	StreamSSE  = "run"
	StreamWS   = "run.ws"
	StreamGRPC = "run.grpc"
)

// Names of what clients publish on.
const (
	PublishWS   = "publish.ws"
	PublishGRPC = "publish.grpc"
)

// TapWS is the name of what gives the events of all runs.
const TapWS = "tap.ws"

// maxPublished is the largest message of a client that publishes: an event, and what JSON or protobuf add to it.
const maxPublished = 2 * schema.MaxEventBytes

// Subprotocol is what a WebSocket client opts in with (native §5.2).
const Subprotocol = "koder-agent-stream-v1"

// descriptors is schema/contracts/agent/v1/agent.proto, compiled: an encoded FileDescriptorSet. A test compiles
// the contract again and compares.
//
//go:embed agent.binpb
var descriptors []byte

// Protocol returns what an edge mounts: the dialect with its streams. The routes are the edge's own.
func Protocol() protocol.Protocol {
	const path = "GET /v1/agent/runs/{run}/stream"
	p := protocol.Protocol{Dialect: Dialect{}}
	for _, st := range []dialect.Stream{
		{Name: StreamSSE, Pattern: path, Transport: dialect.SSE, Mode: dialect.ModeB, Shaped: true, Shared: true},
		{Name: StreamWS, Pattern: path, Transport: dialect.WebSocket, Mode: dialect.ModeB, Shaped: true, Shared: true,
			Subprotocols: []string{Subprotocol, Profile}},
		{Name: StreamGRPC, Pattern: "POST /agent.v1.AgentRun/Stream", Transport: dialect.GRPC, Mode: dialect.ModeB,
			Shaped: true, Shared: true},
		{Name: PublishWS, Pattern: "GET /v1/agent/events", Transport: dialect.WebSocket, Mode: dialect.ModeD, Publishes: true,
			MaxMessage: maxPublished, Subprotocols: []string{Subprotocol}},
		{Name: TapWS, Pattern: "GET /v1/agent/events/stream", Transport: dialect.WebSocket, Mode: dialect.ModeD, Taps: true,
			Subprotocols: []string{Subprotocol}},
		{Name: PublishGRPC, Pattern: "POST /agent.v1.AgentIngest/Publish", Transport: dialect.GRPC, Mode: dialect.ModeD,
			Publishes:  true,
			MaxMessage: maxPublished},
	} {
		p.Streams = append(p.Streams, protocol.Stream{Stream: st})
	}
	return p
}

// Info names the protocol.
func (Dialect) Info() dialect.Info {
	return dialect.Info{Name: "native", Files: [][]byte{descriptors}}
}

// Open reads what is asked for: from the path, the query and headers, or from the request message of
// gRPC.
func (Dialect) Open(in dialect.Input) (dialect.Request, error) {
	var req dialect.Request
	var err error
	if in.Stream == StreamGRPC {
		req, err = readMessage(in)
	} else {
		req, err = readQuery(in)
	}
	if err != nil {
		return dialect.Request{}, err
	}
	req.Stream = in.Stream
	if err := schema.ValidRunID(req.Run); err != nil {
		return dialect.Request{}, err
	}
	if req.Filter, err = req.Filter.Normal(); err != nil {
		return dialect.Request{}, err
	}
	return req, nil
}

func readQuery(in dialect.Input) (req dialect.Request, err error) {
	req.Run = in.Path["run"]
	if req.Cursor, err = readCursor(in); err != nil {
		return req, err
	}
	if text := in.Query.Get("from_step"); text != "" {
		step, err := dialect.ParseStep(text)
		if err != nil {
			return req, err
		}
		if req.Cursor == (dialect.Cursor{}) { // one that comes back has the URL of its first request
			req.Cursor = dialect.Cursor{Step: step, ByStep: true}
		}
	}
	if req.Detail, err = readDetail(in); err != nil {
		return req, err
	}
	req.Filter.Children = dialect.SplitList(in.Query["child"])
	req.Filter.Types = dialect.SplitList(in.Query["types"])
	for _, o := range []struct {
		name string
		into *bool
	}{{"nested", &req.Filter.Nested}, {"snapshot", &req.Snapshot}, {"bundle", &req.Bundle}} {
		if *o.into, err = readBool(in, o.name); err != nil {
			return req, err
		}
	}
	if req.Speed, err = readSpeed(in.Query.Get("speed")); err != nil {
		return req, err
	}
	f := form{}
	if f.named, err = readEvent(in); err != nil {
		return req, err
	}
	if f.letter, err = readProfile(in); err != nil {
		return req, err
	}
	return f.apply(req)
}

func readBool(in dialect.Input, name string) (bool, error) {
	switch in.Query.Get(name) {
	case "", "false", "0":
		return false, nil
	case "true", "1":
		return true, nil
	}
	return false, dialect.BadValue(dialect.ErrBadRequest, name, in.Query.Get(name), "true or false")
}

// Bounds of ?speed=.
const (
	minSpeed = 0.01
	maxSpeed = 1000
)

func readSpeed(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= minSpeed && v <= maxSpeed) {
		return 0, dialect.BadValue(dialect.ErrBadRequest, "speed", text, "a number from %v to %v", minSpeed, maxSpeed)
	}
	return v, nil
}

// readCursor takes Last-Event-ID before ?after=: on a reconnect the browser repeats the URL of the
// first request and adds the header, which is the newer of the two.
func readCursor(in dialect.Input) (dialect.Cursor, error) {
	header, err := single("Last-Event-ID", in.Header.Values("Last-Event-ID"))
	if err != nil {
		return dialect.Cursor{}, err
	}
	// WebSocket has no field for it (native digest §4.11); both names are in use.
	query, err := single("after and last_event_id", append(slices.Clone(in.Query["after"]), in.Query["last_event_id"]...))
	if err != nil {
		return dialect.Cursor{}, err
	}
	return parseCursor(cmp.Or(header, query))
}

// parseCursor takes a seq or an event's id.
func parseCursor(text string) (dialect.Cursor, error) {
	if strings.HasPrefix(text, schema.EventPrefix) && schema.ValidEventID(text) == nil {
		return dialect.Cursor{ID: text}, nil
	}
	seq, err := schema.ParseCursor(text)
	if err != nil {
		return dialect.Cursor{}, dialect.BadValue(schema.ErrBadCursor,
			"the cursor (Last-Event-ID, after or last_event_id)", text,
			"the seq or the id of an event of the run")
	}
	return dialect.Cursor{Seq: seq}, nil
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
	return 0, dialect.BadValue(dialect.ErrBadRequest, "detail", text, "full, or absent")
}

// single refuses a cursor that is given twice: which one is meant decides what the client misses.
func single(name string, values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", dialect.Refuse(schema.ErrBadCursor, "%s must be given once, not %d times", name, len(values))
}

// Projector returns the log's own lines, or the messages that hold the same.
func (Dialect) Projector(req dialect.Request) dialect.Projector {
	f := parseForm(req.Form)
	if req.Stream == StreamGRPC {
		return &messages{letter: f.letter}
	}
	return recordProjector{f, req.Stream == StreamWS}
}

// AppendError writes {"error":{…}}.
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte { return p.AppendJSON(dst) }

// recordProjector makes a frame of each record.
type recordProjector struct {
	form
	bare bool // frames have no names: a WebSocket's
}

// gapType is shape.GapType: it says what this client was spared, and is no event of the log.
const gapType = "stream.gap"

// Project makes one frame of the record's own bytes. It has no name unless names are asked for: an EventSource passes a
// named event to the listeners of that name alone, and the one data line is all that the protocol knows (native §5.1).
// What is no event of the log always has its name, so that it moves the cursor and onmessage does not hear it.
func (p recordProjector) Project(out *dialect.Frames, r schema.Record) error {
	gap := string(r.Type) == gapType
	if gap && p.letter && p.bare {
		return nil
	}
	f := dialect.Frame{Data: r.Line, Token: out.Number(int64(r.Seq))}
	if p.letter {
		r.Type, f.Data = inProfile(out, r)
	}
	if p.named || gap {
		f.Event = r.Type
	}
	out.Add(f)
	return nil
}
