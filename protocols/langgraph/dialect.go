package langgraph

import (
	"encoding/json"
	"strings"

	"agentstream/edge/dialect"
)

// Dialect speaks the protocol. The zero value is ready.
type Dialect struct{}

var _ dialect.Dialect = Dialect{}

// StreamName is the name of the one kind of stream, the events of a thread: Request.Stream, whatever carries it.
const StreamName = "events"

// StreamLegacy begins the names of the streams of the older API.
const StreamLegacy = "run"

// Info names the protocol. Where its streams are served, its registration says.
func (Dialect) Info() dialect.Info { return dialect.Info{Name: "langchain"} }

// Open reads in.Body, the body of a POST or the params of subscription.subscribe, and Last-Event-ID, for the thread
// in.Path["run"]; of the older API the query, for its run in.Path["part"] or all of its runs.
func (Dialect) Open(in dialect.Input) (dialect.Request, error) {
	if strings.HasPrefix(in.Stream, StreamLegacy) {
		return openLegacy(in)
	}
	s, err := ParseSubscribe(in.Body)
	if err != nil {
		return dialect.Request{}, err
	}
	return s.Request(in.Path["run"], in.Header.Get("Last-Event-ID"))
}

func openLegacy(in dialect.Input) (dialect.Request, error) {
	if in.Query.Has("namespace") {
		return dialect.Request{}, dialect.Refuse(dialect.ErrUnprocessable,
			"namespace is not served: stream_subgraphs has those of all namespaces")
	}
	var modes []string
	for _, text := range in.Query["stream_mode"] {
		if text == "" {
			continue // the SDK for Python sends it where no mode is asked for
		}
		list := []string{text}
		_ = json.Unmarshal([]byte(text), &list) // older clients send a list in one text
		modes = append(modes, list...)
	}
	q := Legacy{Thread: in.Path["run"], Run: in.Path["part"], Modes: modes,
		Subgraphs:   in.Query.Get("stream_subgraphs") == "true",
		LastEventID: in.Header.Get("Last-Event-ID")}
	return q.Request()
}

// Projector returns one that has seen nothing yet: a *Projector.
func (Dialect) Projector(req dialect.Request) dialect.Projector { return newProjector(req) }
