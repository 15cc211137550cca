package langgraph

import "agentstream/edge/dialect"

// Dialect speaks the protocol. The zero value is ready.
type Dialect struct{}

var _ dialect.Dialect = Dialect{}

// StreamName is the name of the one kind of stream, the events of a thread: Request.Stream, whatever carries it.
const StreamName = "events"

// Info names the protocol. Where its streams are served, its registration says.
func (Dialect) Info() dialect.Info { return dialect.Info{Name: "langchain"} }

// Open reads in.Body, the body of a POST or the params of subscription.subscribe, and Last-Event-ID, for the thread in.Path["run"].
func (Dialect) Open(in dialect.Input) (dialect.Request, error) {
	s, err := ParseSubscribe(in.Body)
	if err != nil {
		return dialect.Request{}, err
	}
	return s.Request(in.Path["run"], in.Header.Get("Last-Event-ID"))
}

// Projector returns one that has seen nothing yet: a *Projector.
func (Dialect) Projector(req dialect.Request) dialect.Projector { return newProjector(req) }
