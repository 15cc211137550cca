package serve

import (
	"bytes"
	"context"
	"net/http"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

func (a *api) commandRoutes() []protocol.Route {
	return []protocol.Route{route("POST", "/threads/{run}/commands", auth.ScopeRead, a.command)}
}

// command is one that clients may give, whatever carries it. do answers, or returns a refusal; what else it returns is
// sent as the table of ends has it. params is a JSON value, nil when there is none.
type command struct {
	needs auth.Scope
	do    func(ctx context.Context, c *protocol.Call, thread string, params []byte) (answer, error)
}

// commands are those of §4 but for subscriptions, by their methods.
var commands = map[string]command{
	"run.start":             {auth.ScopeCommand, startRun},
	"input.respond":         {auth.ScopeCommand, respond},
	"input.inject":          {auth.ScopeCommand, inject},
	"agent.getTree":         {auth.ScopeRead, getTree},
	"state.get":             {auth.ScopeRead, getValues},
	"state.listCheckpoints": {auth.ScopeRead, listCheckpoints},
	"state.fork":            {auth.ScopeWrite, fork},
}

// commandOf returns a command by its method.
func (a *api) commandOf(method string) (command, error) {
	switch method {
	case "subscription.subscribe", "subscription.unsubscribe", "subscription.reconnect":
		return command{}, refuse(langgraph.CodeNotSupported, "%s is for sockets", method)
	}
	if cmd, ok := commands[method]; ok {
		return cmd, nil
	}
	return command{}, refuse(langgraph.CodeUnknownCommand, "there is no command %.100q", method)
}

// carryOut does what a command asks for, within its scope.
func (a *api) carryOut(ctx context.Context, c *protocol.Call, allowed within, thread string, e envelope) (ans answer,
	err error) {
	cmd, err := a.commandOf(e.Method)
	if err != nil {
		return ans, err
	}
	err = allowed(cmd.needs, func() (err error) {
		ans, err = cmd.do(ctx, c, thread, e.Params)
		return err
	})
	return ans, err
}

// command answers one over HTTP: with 200 whatever the protocol says of it.
func (a *api) command(ctx context.Context, c *protocol.Call) error {
	thread := c.Path("run")
	if err := schema.ValidRunID(thread); err != nil {
		return err
	}
	body, err := c.Body("application/json")
	if err != nil {
		return err
	}
	e, err := readEnvelope(body)
	if err != nil {
		return err
	}
	ans, err := a.carryOut(ctx, c, scopeCheck(c), thread, e)
	if err == nil {
		c.Reply(http.StatusOK, appendAnswer(nil, e.ID, thread, ans))
		return nil
	}
	text, p, ok := errorOf(c, e.ID, err)
	if !ok || p.Status >= 500 || p.Status == http.StatusForbidden || p.Status == http.StatusTooManyRequests {
		return err
	}
	c.Reply(http.StatusOK, text)
	return nil
}

// params are those of a command. Names are taken in snake_case, and in camelCase as the second one.
type params jsonscan.Fields

func readParams(raw []byte) (params, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte("{}")
	}
	if raw[0] != '{' {
		return nil, refuse(langgraph.CodeInvalidArgument, "params is not an object")
	}
	return params(jsonscan.Fields(nil).Read(raw)), nil
}

// raw returns the first of some fields that is there and not null; nil for none.
func (p params) raw(names ...string) []byte {
	for _, name := range names {
		if v := jsonscan.Fields(p).Raw(name); v != nil && string(v) != "null" {
			return v
		}
	}
	return nil
}

// text returns a field that is a text. The error is a refusal of one that is not there, or is something else.
func (p params) text(names ...string) (string, error) {
	v := p.raw(names...)
	if !jsonscan.IsString(v) || len(v) == 2 {
		return "", refuse(langgraph.CodeInvalidArgument, "%s is not a text", names[0])
	}
	return jsonscan.DecodeString(v), nil
}

// optional returns a field that may be absent, and is of the kind that begins so: '{', '[' or '"'.
func (p params) optional(kinds string, names ...string) ([]byte, error) {
	v := p.raw(names...)
	if v != nil && bytes.IndexByte([]byte(kinds), v[0]) < 0 {
		return nil, refuse(langgraph.CodeInvalidArgument, "%s is of the wrong kind", names[0])
	}
	return v, nil
}

// texts returns a field that may be absent and is a list of texts otherwise; nil for one that is absent.
func (p params) texts(name string) (list []string, err error) {
	v, err := p.optional("[", name)
	if v == nil {
		return nil, err
	}
	list = []string{}
	for e := range jsonscan.Elements(v) {
		if !jsonscan.IsString(e) || len(list) == dialect.MaxList {
			return nil, refuse(langgraph.CodeInvalidArgument, "%s is not a list of at most %d texts", name, dialect.MaxList)
		}
		list = append(list, jsonscan.DecodeString(e))
	}
	return list, nil
}

// find returns a thread as it stands. The error is a refusal for one that is not there.
func find(ctx context.Context, c *protocol.Call, thread string) (schema.Head, *langgraph.Projector, error) {
	head, p, err := protocol.Newest[*langgraph.Projector](ctx, c, whole(thread))
	return head, p, explainMissing(err)
}

// explainMissing is err, or a refusal where that means that there is no such thread.
func explainMissing(err error) error {
	if notThere(err) {
		return refuse(langgraph.CodeNoSuchRun, "there is no such thread")
	}
	return err
}

// planChange is a change of a thread that is made for the thread as it is.
func planChange(thread string, plan func(schema.Head, *langgraph.Projector) ([]schema.Event, error)) protocol.Change[*langgraph.Projector] {
	return protocol.Change[*langgraph.Projector]{Request: whole(thread), Plan: plan}
}

// event is what a client puts into a lane of a thread.
func event(typ, lane string, payload jsonscan.Object) schema.Event {
	return schema.Event{Type: typ, ChildID: lane, Actor: "user", Payload: []byte(payload)}
}

// addAuthor adds to a payload who says it.
func addAuthor(c *protocol.Call, payload jsonscan.Object) jsonscan.Object {
	return jsonscan.Object(c.By([]byte(payload)))
}
