package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// words is a protocol of one stream: the text of a run, one frame for each piece.
type words struct{}

// wordsProtocol returns what an edge serves. Shared: the frames are the same for all clients, so they are made once.
func wordsProtocol() protocol.Protocol {
	stream := dialect.Stream{Name: "words", Pattern: "GET /words/{run}", Transport: dialect.SSE, Mode: dialect.ModeB,
		Shared: true}
	return protocol.Protocol{Dialect: words{}, Below: []string{"/words"}, Streams: []protocol.Stream{{Stream: stream}}}
}

// Info names the protocol in logs and metrics.
func (words) Info() dialect.Info { return dialect.Info{Name: "words"} }

// Open reads a request. A browser that comes back sends the id of the last frame that it has.
func (words) Open(in dialect.Input) (dialect.Request, error) {
	after, badCursor := schema.ParseCursor(in.Header.Get("Last-Event-ID"))
	run := in.Path["run"]
	err := errors.Join(schema.ValidRunID(run), badCursor)
	return dialect.Request{Run: run, Stream: in.Stream, Cursor: dialect.Cursor{Seq: after}}, err
}

// Projector returns the translation of records to frames. It needs no state.
func (words) Projector(dialect.Request) dialect.Projector { return dialect.ProjectorFunc(project) }

// project makes a frame of a piece of text, and of the end of the run. Its id is the cursor after it.
func project(out *dialect.Frames, r schema.Record) error {
	var payload struct{ Text, State string }
	switch string(r.Type) {
	case schema.TypeTextDelta, schema.TypeRunLifecycle:
		if err := json.Unmarshal(r.Payload(), &payload); err != nil {
			return fmt.Errorf("words: seq %d: %w", r.Seq, err)
		}
	}
	frame := dialect.Frame{Token: out.Number(int64(r.Seq))}
	switch {
	case payload.Text != "":
		frame.Data, _ = json.Marshal(payload.Text) // a string always encodes
	case schema.RunState(payload.State).Final():
		frame.Event = []byte("end")
		frame.Data, _ = json.Marshal(payload.State)
	default:
		return nil
	}
	out.Add(frame)
	return nil
}

// AppendError writes what a client is told instead of a stream.
func (words) AppendError(dst []byte, p dialect.Problem) []byte {
	text, _ := json.Marshal(map[string]string{"error": p.Message}) // strings always encode
	return append(dst, text...)
}
