package dialecttest

import (
	"context"
	"encoding/json"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
	"agentstream/schema"
)

// Protocol returns the registration of the sample.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Dialect:   Sample{},
		Below:     []string{"/sample"},
		LastWords: lastWords,
		Routes:    notes(),
		Streams: map[string]protocol.Stream{
			"feed": {Complete: complete, Format: &sse.Format{Name: "sample", Tight: true, IDFirst: true, NoRetry: true}},
			"ask":  {Begin: ask},
			"near": {KeepAlive: 5 * time.Second, Heartbeat: &dialect.Frame{Event: []byte("beat"), Data: []byte("{}")}},
		},
	}
}

// question is the body of a POST.
type question struct {
	Run    string `json:"run"`
	Only   string `json:"only"`
	Turn   string `json:"turn"`
	Last   string `json:"last"`
	Newest bool   `json:"newest"`
	Await  bool   `json:"await"`
	Text   string `json:"text"`
}

// read reads a body over what is known already.
func (q *question) read(body []byte) error {
	if err := json.Unmarshal(body, q); err != nil {
		return dialect.Refuse(dialect.ErrBadRequest, "the body is not an object with the fields that are known")
	}
	return nil
}

// ask appends what a user says, and answers with the stream from there on, to the end of the turn.
func ask(c *protocol.Call, in dialect.Input) (dialect.Request, error) {
	req, err := Sample{}.Open(in)
	if err != nil {
		return req, err
	}
	req.Run = in.Path["run"]
	opt, err := c.Keyed()
	if err != nil {
		return req, err
	}
	var q question
	if err := q.read(in.Body); err != nil {
		return req, err
	}
	payload, _ := json.Marshal(map[string]string{"content": q.Text})
	ctx, cancel := c.Bounded()
	defer cancel()
	opt.Whole, opt.Check = true, open
	at, err := c.Append(ctx, req.Run, []schema.Event{{Type: schema.TypeCommandMessage, Payload: payload}}, opt)
	req.Cursor = dialect.Cursor{Seq: at.First - 1}
	return req, err
}

// open lets events into runs that are there and go on.
func open(_ context.Context, head schema.Head) error {
	switch {
	case !head.Exists():
		return dialect.ErrNotFound
	case head.State.Final():
		return schema.ErrEnded
	}
	return nil
}

// complete says that nothing is left in a body of its own.
func complete(c *protocol.Call) error {
	c.Reply(200, []byte(`{"complete":true}`))
	return nil
}

// lastWords ends a stream for which a node has no time with an event, and cleanly: the client comes again by itself.
func lastWords(_ dialect.Stream, why dialect.Problem, begun bool, end *transport.End) {
	switch {
	case !begun:
	case why.Reason == dialect.ReasonShutdown, why.Reason == dialect.ReasonOverflow:
		end.Clean, end.Close, end.Message = true, 4000+int(why.Reason), "come again"
		end.Last = []dialect.Frame{{Event: []byte("again"), Data: []byte(`{"why":"` + why.Reason.String() + `"}`)}}
	}
}
