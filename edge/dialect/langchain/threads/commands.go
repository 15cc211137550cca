package threads

import (
	"context"
	"net/http"

	"agentstream/edge/auth"
	"agentstream/edge/dialect/langchain"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

func (a *api) commandRoutes() []protocol.Route {
	return []protocol.Route{route("POST", "/threads/{run}/commands", auth.ScopeRead, a.command)}
}

// command is one that clients may give, whatever carries it. do answers, or returns a refusal; what else it returns is told as
// the table of ends has it. params is a JSON value, nil when there is none.
type command struct {
	needs auth.Scope
	do    func(ctx context.Context, c *protocol.Call, thread string, params []byte) (answer, error)
}

// commandOf returns a command by its method.
func (a *api) commandOf(method string) (command, error) {
	switch method {
	case "subscription.subscribe", "subscription.unsubscribe", "subscription.reconnect":
		return command{}, refuse(langchain.CodeNotSupported, "%s is for sockets", method)
	}
	return command{}, refuse(langchain.CodeUnknownCommand, "there is no command %q", method)
}

// carryOut does what a command asks for, within its scope.
func (a *api) carryOut(ctx context.Context, c *protocol.Call, allowed within, thread string, e envelope) (ans answer, err error) {
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
	ans, err := a.carryOut(ctx, c, scoped(c), thread, e)
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
