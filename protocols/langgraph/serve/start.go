package serve

import (
	"context"
	"errors"
	"slices"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Types that the schema has no names for.
const (
	typeCancel = "command.cancel"
	typeAnswer = "command.answer"
)

// start is a run.start that was read.
type start struct {
	thread     string
	agent      []byte // JSON
	input      input
	metadata   []byte
	payload    jsonscan.Object // of the command.message
	strategy   string          // "": injected while a run is under way
	checkpoint string          // that the run is to begin from; "": the newest
}

// The strategies of multitask_strategy.
var strategies = []string{"", "enqueue", "interrupt", "rollback", "reject"}

func readStart(c *protocol.Call, thread string, raw []byte) (s start, err error) {
	p, err := readParams(raw)
	if err != nil {
		return s, err
	}
	s.thread = thread
	if _, err = p.text("assistant_id", "assistantId"); err != nil {
		return s, err
	}
	s.agent, s.input = p.raw("assistant_id", "assistantId"), p.raw("input")
	config, err1 := p.optional("{", "config")
	metadata, err2 := p.optional("{", "metadata")
	strategy, err3 := p.optional(`"`, "multitask_strategy", "multitaskStrategy")
	if err := errors.Join(err1, err2, err3); err != nil {
		return s, err
	}
	s.strategy, s.metadata = jsonscan.DecodeString(strategy), metadata
	if !slices.Contains(strategies, s.strategy) {
		return s, refuse(langgraph.CodeInvalidArgument, "there is no multitask_strategy %.100q", s.strategy)
	}
	s.checkpoint = jsonscan.DecodeString(schema.Field(schema.Field(config, "configurable"), "checkpoint_id"))
	o := s.input.message(c, s.agent).OptRaw("config", config).OptRaw("metadata", metadata).OptStr("multitask_strategy",
		s.strategy)
	for _, name := range slices.Concat([]string{"update", "goto"}, handed) {
		o = o.OptRaw(name, p.raw(name))
	}
	s.payload = addAuthor(c, o.End())
	return s, nil
}

// input is that of a run, JSON; nil for none.
type input []byte

// message begins the command.message that starts a run of an agent, JSON as well.
func (in input) message(c *protocol.Call, agent []byte) jsonscan.Object {
	m := messageOf(in)
	if m.id == nil {
		m.id = jsonscan.AppendString(nil, c.NewRun("msg_")) // so that an agent can name it in its state
	}
	o := jsonscan.Object{'{'}.Raw("content", m.content).Raw("message_id", m.id).OptRaw("name",
		m.name).Raw("assistant_id", agent)
	return o.OptRaw("input", in)
}

// message is what a person says.
type message struct{ content, id, name []byte }

// messageOf returns the newest message of a person in an input. An input of another shape is kept as it is.
func messageOf(input []byte) (m message) {
	messages := schema.Field(input, "messages")
	if len(messages) > 0 && messages[0] == '{' {
		messages = append(append([]byte{'['}, messages...), ']')
	}
	if jsonscan.IsString(messages) {
		return message{content: messages}
	}
	for e := range jsonscan.Elements(messages) {
		f := jsonscan.Fields(nil).Read(e)
		role := f.Str("role") + f.Str("type")
		if role != "user" && role != "human" && !jsonscan.IsString(e) {
			continue
		}
		m = message{content: e}
		if !jsonscan.IsString(e) {
			m = message{f.Raw("content"), f.Kind("id", '"'), f.Kind("name", '"')}
		}
	}
	if c := m.content; len(c) == 0 || c[0] != '"' && c[0] != '[' {
		if c == nil {
			c = input
		}
		m.content = jsonscan.AppendString(nil, string(c))
	}
	return m
}

// plan is what a run.start does to a thread as it stands.
type plan struct {
	events []schema.Event
	run    func(producers.Receipt) string // the id of the run that it is about
}

// plan decides. A refusal is for the client.
func (s *start) plan(p *langgraph.Projector) (plan, error) {
	says := event(schema.TypeCommandMessage, "", s.payload)
	own := func(r producers.Receipt) string { return langgraph.RunID(s.thread, r.Last) }
	id, active := p.Run()
	switch {
	case active && s.strategy == "reject":
		return plan{}, refuse(langgraph.CodeInvalidArgument, "a run is under way")
	case active && (s.strategy == "interrupt" || s.strategy == "rollback"):
		stop := event(typeCancel, "", []byte(`{"reason":"another run was started"}`))
		return plan{[]schema.Event{stop, says}, own}, nil
	case active && s.strategy == "enqueue", !active && len(p.Requests()) == 0:
		return plan{[]schema.Event{says}, own}, nil
	case active:
		return plan{[]schema.Event{says}, func(producers.Receipt) string { return id }}, nil
	}
	answers, err := s.answerEvents(p, p.Requests())
	return plan{answers, func(r producers.Receipt) string { return langgraph.RunID(s.thread, r.First) }}, err
}

// answerEvents makes the input the answer to what the thread waits for: to one request as it is, to several by
// their ids.
func (s *start) answerEvents(p *langgraph.Projector, open []langgraph.Request) (events []schema.Event, err error) {
	if n := len(open); n > dialect.MaxList || n > 1 && n*len(s.payload) > schema.MaxPackBytes {
		return nil, refuse(langgraph.CodeInvalidArgument,
			"%d requests wait for an answer, too many or too large for one run.start (input.respond answers some of them)", n)
	}
	said, err := answersIn(s.input, p, open)
	if err != nil {
		return nil, err
	}
	for _, r := range open {
		v := said[r.ID]
		if len(open) > 1 && (v == nil || r.Lane != open[0].Lane) {
			return nil, refuse(langgraph.CodeInvalidArgument,
				"%d requests wait for an answer: input has none for %.100q (input.respond answers some of them)", len(open), r.ID)
		}
		o := jsonscan.Object{'{'}.Str("request_id", r.ID).Raw("answer", v).Raw("run", s.payload)
		events = append(events, event(typeAnswer, r.Lane, o.End()))
	}
	return events, nil
}

// startRun is run.start: a new thread, a new run of one, the answer to what it waits for, or a message into the run
// under way.
func startRun(ctx context.Context, c *protocol.Call, thread string, raw []byte) (answer, error) {
	s, err := readStart(c, thread, raw)
	if err != nil {
		return answer{}, err
	}
	for {
		id, receipt, err := s.store(ctx, c)
		if notThere(err) {
			id, receipt, err = s.create(ctx, c)
		}
		if errors.Is(err, producers.ErrExists) {
			continue // somebody has created it meanwhile; ctx ends it
		}
		if err != nil {
			return answer{}, err
		}
		return answer{jsonscan.Object{'{'}.Str("run_id", id).End(), through(receipt.First - 1)}, nil
	}
}

// create begins the thread with the run.
func (s *start) create(ctx context.Context, c *protocol.Call) (string, producers.Receipt, error) {
	if err := c.Allow(auth.ScopeWrite); err != nil {
		return "", producers.Receipt{}, err
	}
	if s.checkpoint != "" {
		return "", producers.Receipt{}, refuse(langgraph.CodeNoSuchCheckpoint, "the thread has no such checkpoint")
	}
	made := jsonscan.Object{'{'}.Raw("agent", s.agent).OptRaw("metadata", s.metadata).End()
	receipt, err := c.Append(ctx, s.thread, []schema.Event{
		event(schema.TypeSessionCreated, "", made), event(schema.TypeCommandMessage, "", s.payload),
	}, producers.AppendOptions{MustBeNew: true, Whole: true})
	return langgraph.RunID(s.thread, receipt.Last), receipt, err
}

// store stores what the plan has for the thread as it is.
func (s *start) store(ctx context.Context, c *protocol.Call) (string, producers.Receipt, error) {
	var todo plan
	receipt, err := planChange(s.thread, func(head schema.Head, p *langgraph.Projector) (_ []schema.Event, err error) {
		if s.checkpoint != "" {
			if _, err := checkpointOf(ctx, c, s.thread, nil, head.Last, s.checkpoint); err != nil {
				return nil, err
			}
		}
		todo, err = s.plan(p)
		return todo.events, err
	}).Store(ctx, c)
	if err != nil {
		return "", receipt, err
	}
	return todo.run(receipt), receipt, nil
}
