package threads

import (
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/dialect/langchain"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// maxMessage is the largest message of a client, in bytes. gather is how long subscriptions wait for others (§8.24b).
const (
	maxMessage = 1 << 20
	gather     = 10 * time.Millisecond
)

// conversations are the socket of a thread, on its paths.
func (a *api) conversations() (list []protocol.Conversation) {
	for _, path := range paths {
		list = append(list, protocol.Conversation{
			Stream: dialect.Stream{Name: langchain.StreamName, Pattern: "GET " + path, Mode: dialect.ModeD, Shared: true, Backlog: a.cfg.Backlog, MaxMessage: maxMessage},
			Needs:  auth.ScopeRead, Subscriptions: protocol.MaxSubscriptions, Once: true, Gather: gather,
			Opened: opened, Received: a.received,
		})
	}
	return list
}

// opened refuses what is no thread's id.
func opened(t *protocol.Talk) error { return schema.ValidRunID(t.Path("run")) }

// received answers a command. What is no matter of the command ends the conversation.
func (a *api) received(t *protocol.Talk, message []byte) error {
	e, err := readEnvelope(message)
	var ans answer
	if err == nil {
		ans, err = a.carryOut(t.Context(), t.Call, t.With, t.Path("run"), e)
	}
	if err == nil {
		return t.Send(dialect.Frame{Data: appendAnswer(nil, e.ID, t.Path("run"), ans)})
	}
	text, _, ok := errorOf(t.Call, e.ID, err)
	if !ok {
		return err
	}
	return t.Send(dialect.Frame{Data: text})
}
