package serve

import (
	"context"
	"errors"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/internal/backoff"
	"agentstream/producers"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// firstLook is when a stream asks first whether a deadline of its run has passed: most are over by then.
const firstLook = time.Second

// patience is how much later than the run's worker a stream looks: that ends the turn, too.
const patience = 250 * time.Millisecond

// afterwards is the time for what is stored when a stream has ended.
const afterwards = 5 * time.Second

// alive serves a stream, and ends its run when a deadline passes meanwhile.
func alive(c *protocol.Call, req dialect.Request, serve func() error) error {
	ctx, stop := context.WithCancel(context.WithoutCancel(c.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		expire(ctx, c, req.Run)
	}()
	defer func() { stop(); <-done }()
	err := serve()
	if errors.Is(err, dialect.ErrSlowClient) {
		<-time.After(transport.Notice)
	}
	return err
}

// closing serves the stream of a session. Clients lose what they have not read when an error comes, so that comes a
// little later than the last event.
func closing(_ *protocol.Call, _ dialect.Request, serve func() error) error {
	err := serve()
	if err == nil {
		<-time.After(transport.Notice)
	}
	return err
}

// expire looks after the deadlines of a run until it is over or ctx ends. What cannot be read now is looked at again.
func expire(ctx context.Context, c *protocol.Call, run string) {
	words := producers.Reasons{Timeout: runtimev1.ReasonCode_AI_PROVIDER_TIMEOUT.String()}
	for next := time.Now().Add(firstLook); ; {
		if backoff.Sleep(ctx, time.Until(next)) != nil {
			return
		}
		_, at, err := c.Expire(ctx, run, words)
		switch {
		case err != nil:
			next = time.Now().Add(firstLook)
		case at.IsZero():
			return
		default:
			next = at.Add(patience)
		}
	}
}

// scenarioAlive serves the stream of a scenario. One whose client leaves before the end may take the run with it.
func scenarioAlive(c *protocol.Call, req dialect.Request, serve func() error) error {
	err := alive(c, req, serve)
	if err != nil && !errors.Is(err, dialect.ErrComplete) {
		said := c.Report
		// that of the client's call
		leave(c, req.Run, errors.Is(err, dialect.ErrClientGone) || errors.Is(err, context.DeadlineExceeded))
		c.Report = said
	}
	return err
}

// errNobody is for runs that end with no client.
var errNobody = errors.New("the run does not depend on its clients")

// join notes in a run that a client has come again, if the run ends with the last of its clients.
func join(ctx context.Context, c *protocol.Call, run string) error {
	return storeStream(ctx, c, run, false, schema.Event{Type: nimi.TypeClients, Actor: "user",
		Payload: []byte(`{"client":"came"}`)})
}

// leave notes that a client has left, if the run ends with the last of its clients, and cancels it when it was the last
// and gone of its own will: a node that goes away takes nobody's.
func leave(c *protocol.Call, run string, gone bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), afterwards)
	defer cancel()
	why := c.By([]byte(jsonscan.Object("{").Str("reason", "its client has left").End()))
	_ = storeStream(ctx, c, run, !gone, schema.Event{Type: nimi.TypeClients, Actor: "user",
		Payload: []byte(`{"client":"left"}`)},
		schema.Event{Type: "command.cancel", Actor: "user", Payload: why}) // a run that is not told goes on to its deadline
}

// storeStream stores the first of events, and the others with it when no client is left then; with stays never.
func storeStream(ctx context.Context, c *protocol.Call, run string, stays bool, events ...schema.Event) error {
	_, err := protocol.Change[*nimi.Job]{
		Request: dialect.Request{Run: run, Stream: nimi.StreamJob}, Running: true,
		Plan: func(_ schema.Head, j *nimi.Job) ([]schema.Event, error) {
			switch {
			case !j.Scenario().Leaves || j.IsClosed():
				return nil, errNobody
			case j.Clients() == 1 && !stays:
				return events, nil
			}
			return events[:1], nil
		},
	}.Store(ctx, c)
	if errors.Is(err, errNobody) || errors.Is(err, schema.ErrEnded) {
		return nil
	}
	return err
}
