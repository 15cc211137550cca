package serve

import (
	"context"
	"fmt"
	"slices"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// response is the answer to one request for input.
type response struct {
	namespace []byte // JSON; nil: any
	id        string
	payload   jsonscan.Object
}

func readResponse(c *protocol.Call, raw []byte) (r response, err error) {
	p, err := readParams(raw)
	if err != nil {
		return r, err
	}
	if r.id, err = p.text("interrupt_id", "interruptId"); err != nil {
		return r, err
	}
	if r.namespace, err = p.optional("[", "namespace"); err != nil {
		return r, err
	}
	o := jsonscan.Object{'{'}.Str("request_id", r.id).Raw("answer", jsonscan.Fields(p).Raw("response"))
	for _, name := range slices.Concat([]string{"update", "goto", "config", "metadata"}, handed) {
		o = o.OptRaw(name, p.raw(name))
	}
	r.payload = addAuthor(c, o.End())
	return r, nil
}

// respond is input.respond: one answer, or many in one pack. Of two that answer the same request one counts.
func respond(ctx context.Context, c *protocol.Call, thread string, raw []byte) (answer, error) {
	p, err := readParams(raw)
	if err != nil {
		return answer{}, err
	}
	entries := [][]byte{raw}
	if list, err := p.optional("[", "responses"); err != nil {
		return answer{}, err
	} else if list != nil {
		entries = slices.Collect(jsonscan.Elements(list))
	}
	if len(entries) == 0 || len(entries) > dialect.MaxList {
		return answer{}, refuse(langgraph.CodeInvalidArgument, "responses has not 1 to %d answers", dialect.MaxList)
	}
	all, seen := []response{}, map[string]bool{}
	for _, e := range entries {
		r, err := readResponse(c, e)
		if err != nil {
			return answer{}, err
		}
		if seen[r.id] {
			return answer{}, refuse(langgraph.CodeInvalidArgument, "%.100q is answered twice", r.id)
		}
		seen[r.id], all = true, append(all, r)
	}
	receipt, err := planChange(thread, func(_ schema.Head, p *langgraph.Projector) ([]schema.Event, error) {
		return answerEvents(p, all)
	}).Store(ctx, c)
	return answer{through: through(receipt.First - 1)}, explainMissing(err)
}

// answerEvents makes the events of answers, if all of their requests wait. One pack holds those of one lane.
func answerEvents(p *langgraph.Projector, all []response) (events []schema.Event, err error) {
	open := p.Requests()
	byID := make(map[string][]langgraph.Request, len(open))
	for _, q := range open {
		byID[q.ID] = append(byID[q.ID], q)
	}
	for _, r := range all {
		waits := byID[r.id]
		i := slices.IndexFunc(waits, func(q langgraph.Request) bool { return r.namespace == nil || sameList(q.Namespace, r.namespace) })
		if i < 0 {
			return nil, r.missing(p, open)
		}
		if len(events) > 0 && events[0].ChildID != waits[i].Lane {
			return nil, refuse(langgraph.CodeInvalidArgument, "requests of several agents are answered one by one")
		}
		events = append(events, event(typeAnswer, waits[i].Lane, r.payload))
	}
	return events, nil
}

// missing is the refusal of an answer whose request does not wait.
func (r *response) missing(p *langgraph.Projector, open []langgraph.Request) error {
	if r.namespace != nil {
		_, known := p.LaneOf(r.namespace)
		if !known && !slices.ContainsFunc(open,
			func(q langgraph.Request) bool { return sameList(q.Namespace, r.namespace) }) {
			return refuse(langgraph.CodeNoSuchNamespace, "the thread has no such namespace")
		}
	}
	return conflict("nothing of the id %.100q waits for an answer; %s", r.id, waiting(open))
}

// sameList reports whether two JSON lists have the same texts.
func sameList(a, b []byte) bool {
	return slices.EqualFunc(slices.Collect(jsonscan.Elements(a)), slices.Collect(jsonscan.Elements(b)),
		func(a, b []byte) bool {
			return jsonscan.DecodeString(a) == jsonscan.DecodeString(b)
		})
}

// inject is input.inject: a message into a lane, of a person or of the system.
func inject(ctx context.Context, c *protocol.Call, thread string, raw []byte) (answer, error) {
	p, err := readParams(raw)
	if err != nil {
		return answer{}, err
	}
	said, err := p.optional("{", "message")
	if err != nil || said == nil {
		return answer{}, refuse(langgraph.CodeInvalidArgument, "message is not an object")
	}
	m := jsonscan.Fields(nil).Read(said)
	role, content := m.Str("role"), m.Raw("content")
	if role != "user" && role != "system" || len(content) == 0 || content[0] != '"' && content[0] != '[' {
		return answer{}, refuse(langgraph.CodeInvalidArgument,
			"message has not the role user or system, and a content that is a text or a list")
	}
	namespace, err := p.optional("[", "namespace")
	if err != nil {
		return answer{}, err
	}
	if namespace == nil {
		namespace = []byte("[]")
	}
	o := jsonscan.Object{'{'}.Raw("content", content).OptRaw("message_id", m.Kind("id", '"')).OptRaw("name",
		m.Kind("name", '"'))
	if role == "system" {
		o = o.Str("role", role)
	}
	payload := addAuthor(c, o.End())
	receipt, err := planChange(thread, func(_ schema.Head, p *langgraph.Projector) ([]schema.Event, error) {
		lane, ok := p.LaneOf(namespace)
		if !ok {
			return nil, refuse(langgraph.CodeNoSuchNamespace, "the thread has no such namespace")
		}
		return []schema.Event{event(schema.TypeCommandMessage, lane, payload)}, nil
	}).Store(ctx, c)
	return answer{through: through(receipt.First - 1)}, explainMissing(err)
}

// getTree is agent.getTree: the agents of the thread.
func getTree(ctx context.Context, c *protocol.Call, thread string, raw []byte) (answer, error) {
	p, err := readParams(raw)
	if err != nil {
		return answer{}, err
	}
	wanted, err := p.optional(`"`, "run_id", "runId")
	if err != nil {
		return answer{}, err
	}
	head, now, err := find(ctx, c, thread)
	if err != nil {
		return answer{}, err
	}
	if wanted != nil {
		if _, ok := now.Find(jsonscan.DecodeString(wanted)); !ok {
			return answer{}, errNoRun
		}
	}
	return answer{fmt.Appendf(nil, `{"tree":%s}`, now.AppendTree(nil)), through(head.Last)}, nil
}
