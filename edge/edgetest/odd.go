package edgetest

import (
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// OddDialect is a dialect that misbehaves.
type OddDialect struct {
	Pattern   string
	Transport dialect.Transport
	OnOpen    func(dialect.Input) (dialect.Request, error)
	OnProject func(*dialect.Frames, schema.Record) error
	Mode      dialect.Mode
}

// Info names the dialect.
func (o OddDialect) Info() dialect.Info { return dialect.Info{Name: "odd"} }

// Streams declares the one stream.
func (o OddDialect) Streams() []protocol.Stream {
	if o.Transport == "" {
		o.Transport = dialect.SSE
	}
	return []protocol.Stream{{Stream: dialect.Stream{Name: "odd", Pattern: o.Pattern, Transport: o.Transport,
		Mode: o.Mode}}}
}

func (o OddDialect) Open(in dialect.Input) (dialect.Request, error) { return o.OnOpen(in) }

func (o OddDialect) Projector(dialect.Request) dialect.Projector { return o }

func (o OddDialect) AppendError(dst []byte, p dialect.Problem) []byte {
	return append(dst, `{"odd":"`+p.Code+`"}`...)
}

func (o OddDialect) Project(out *dialect.Frames, r schema.Record) error { return o.OnProject(out, r) }
