package dialecttest

import (
	"bytes"
	"errors"
	"net/http"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/live"
	"agentstream/schema/schematest"
)

// Suite holds a dialect to the contract of package dialect: what every dialect promises, whatever its words.
type Suite struct {
	Dialect dialect.Dialect
	// Streams are those that the inputs ask for (protocol.Protocol.AllStreams).
	Streams []dialect.Stream
	// Texts are the data of frames that are no JSON.
	Texts []string
	// Inputs are requests for a run, by a name. The suite adds the run's id (Path["run"], or as Of has it) and cursors. A
	// stream that joins deltas (Shaped) is held to less, so an input of it asks for each event.
	Inputs map[string]dialect.Input
	// Of sets the run that an input asks for; nil: Path["run"].
	Of func(in *dialect.Input, run string)
	// Behind makes an input that of a client which has the frame with this token; nil: Last-Event-ID.
	Behind func(in *dialect.Input, token string)
	// Logs are projected besides the scenarios of schematest and a run that was drawn.
	Logs []schematest.Scenario
	// State is the most that a projector says it holds of any of these logs, in bytes.
	State int
	// Refusal reports what is wrong with the body of a refusal; nil: it is any JSON object.
	Refusal func(body []byte, p dialect.Problem) error
}

// suiteRun is the id of the run that the logs are of.
const suiteRun = "run_suite"

// Run runs the suite as subtests of t.
func (s Suite) Run(t *testing.T) {
	t.Run("refusals", s.refusals)
	t.Run("hostile requests", s.hostile)
	for _, log := range s.logs() {
		t.Run(log.Name, func(t *testing.T) {
			k := s.store(t, log)
			for name := range s.Inputs {
				t.Run(name, func(t *testing.T) {
					c := &client{suite: &s, kept: k, t: t}
					c.in = s.Inputs[name]
					c.hold()
				})
			}
		})
	}
}

func (s Suite) logs() []schematest.Scenario {
	drawn := schematest.Generate(1500, 5)
	drawn.Name = "drawn"
	return append(append(schematest.All(), drawn), s.Logs...)
}

// client asks for one thing of one log.
type client struct {
	suite *Suite
	kept  *kept
	t     *testing.T
	in    dialect.Input
	bound *live.Bound
	req   dialect.Request // without a cursor

	opens int // frames of no record
}

// hold checks everything that the contract says of frames.
func (c *client) hold() {
	c.req = c.open("")
	c.req.Newest = false // all of it
	c.nameSpan()
	c.bound = c.suite.findBound(c.t, c.in.Stream)
	c.opening()
	whole := c.read(c.req)
	c.sound(whole)
	c.checkSelection(whole)
	if !c.isShaped() {
		c.checkResume(whole)
		c.checkProjection(whole)
	}
	c.checkSharing(whole)
	c.copies()
}

// nameSpan makes a request for the newest span one for the span that this is, whether it has begun or not.
func (c *client) nameSpan() {
	p, ok := c.stateful(c.req)
	if !ok || c.req.Span != dialect.SpanNewest {
		return
	}
	c.feed(p, c.kept.records)
	span := p.(dialect.Spanner).Span(c.req)
	if span.First > 0 {
		c.req.Span, c.req.Await = span.ID, true
	}
}

// open parses the client's request, as one that has the frame with a token, or none.
func (c *client) open(token string) dialect.Request {
	c.t.Helper()
	in := c.suite.input(c.in, suiteRun)
	if token != "" {
		if c.suite.Behind != nil {
			c.suite.Behind(&in, token)
		} else {
			in.Header.Set("Last-Event-ID", token)
		}
	}
	req, err := c.suite.Dialect.Open(in)
	if err != nil {
		c.t.Fatalf("behind %q: %v", token, err)
	}
	return req
}

// input returns a copy that asks for a run.
func (s *Suite) input(in dialect.Input, run string) dialect.Input {
	in = cloneInput(in)
	if s.Of != nil {
		s.Of(&in, run)
	} else {
		in.Path["run"] = run
	}
	return in
}

// cloneInput returns a copy of in whose maps may be changed.
func cloneInput(in dialect.Input) dialect.Input {
	path := map[string]string{}
	for name, v := range in.Path {
		path[name] = v
	}
	query := map[string][]string{}
	for name, v := range in.Query {
		query[name] = append([]string(nil), v...)
	}
	in.Path, in.Query = path, query
	if in.Header = in.Header.Clone(); in.Header == nil {
		in.Header = http.Header{}
	}
	in.Body = bytes.Clone(in.Body)
	return in
}

// findBound finds a stream, or what the subscriptions of a conversation are served as.
func (s *Suite) findBound(t *testing.T, name string) *live.Bound {
	t.Helper()
	for _, st := range s.Streams {
		if st.Name == name {
			return &live.Bound{Stream: st, Dialect: s.Dialect, DialectName: s.Dialect.Info().Name}
		}
	}
	t.Fatalf("there is no stream %q", name)
	return nil
}

// isShaped reports whether the frames depend on how deltas come.
func (c *client) isShaped() bool {
	return c.bound.Shaped && c.req.Detail == dialect.DetailDefault
}

// stateful returns a projector that has seen nothing, if the dialect's have a state.
func (c *client) stateful(req dialect.Request) (dialect.Stateful, bool) {
	p, ok := c.suite.Dialect.Projector(req).(dialect.Stateful)
	return p, ok
}

// errIdle ends a stream that has brought everything.
var errIdle = errors.New("the client has everything")

// isFinished reports whether an error is that of a stream that was read to its end.
func isFinished(err error) bool {
	return err == nil || errors.Is(err, errIdle) || errors.Is(err, dialect.ErrComplete)
}
