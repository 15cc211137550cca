package serve

import (
	"context"

	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// fork is state.fork: a new thread that begins with its origin and the state of a checkpoint, and with a run if there
// is input.
func fork(ctx context.Context, c *protocol.Call, thread string, raw []byte) (answer, error) {
	p, err := readParams(raw)
	if err != nil {
		return answer{}, err
	}
	id, err := p.text("checkpoint_id", "checkpointId")
	if err != nil {
		return answer{}, err
	}
	head, now, err := find(ctx, c, thread)
	if err != nil {
		return answer{}, err
	}
	at, err := checkpointOf(ctx, c, thread, nil, head.Last, id)
	if err != nil {
		return answer{}, err
	}
	made := c.NewRun("thread_")
	agent := schema.Field(now.Session(), "agent")
	if agent == nil {
		agent = []byte(`"agent"`)
	}
	o := jsonscan.Object{'{'}.Raw("agent", agent)
	o = append(o.Name("metadata"), '{')
	o = append(o.Name("forked_from"), '{').Str("thread_id", thread).Str("checkpoint_id", id).End().End()
	point := jsonscan.Object{'{'}.Str("checkpoint_id", id).Int("step", at.step).Str("source", "fork")
	events := []schema.Event{
		event(schema.TypeSessionCreated, "", o.End()),
		event(schema.TypeCheckpoint, "", point.End()),
		event(schema.TypeStateValues, "", jsonscan.Object{'{'}.Raw("values", pick(at.values, nil)).Str("source",
			"fork").End()),
	}
	if in := input(p.raw("input")); in != nil {
		message := in.message(c, agent).OptRaw("config", p.raw("config"))
		events = append(events, event(schema.TypeCommandMessage, "", addAuthor(c, message.End())))
	}
	receipt, err := c.Append(ctx, made, events, producers.AppendOptions{MustBeNew: true, Whole: true})
	return answer{jsonscan.Object{'{'}.Str("run_id", langgraph.RunID(made, receipt.Last)).Str("thread_id", made).End(),
		-1}, err
}
