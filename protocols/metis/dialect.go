package metis

import "agentstream/edge/dialect"

// Dialect speaks the protocol. The zero value is ready.
type Dialect struct{}

var _ dialect.Dialect = Dialect{}

// StreamName is the name of the one stream, that of a session: Request.Stream.
const StreamName = "session"

// Info names the protocol. Its stream is a conversation, which its registration has.
func (Dialect) Info() dialect.Info { return dialect.Info{Name: "metis"} }

// Open reads a subscribe message, in.Body, for the session in.Path["run"].
func (Dialect) Open(in dialect.Input) (dialect.Request, error) {
	s, err := ParseSubscribe(in.Body)
	if err != nil {
		return dialect.Request{}, err
	}
	return s.Request(in.Path["run"])
}

// Projector returns one that has seen nothing yet: a *Projector.
func (Dialect) Projector(req dialect.Request) dialect.Projector { return newProjector(req) }
