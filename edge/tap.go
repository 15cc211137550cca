package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/rest"
	"agentstream/schema"
)

// mountTap adds a WebSocket on which a client gets the events of all runs of its tenant, and acknowledges them.
func (s *Server) mountTap(p *protocol.Protocol, st dialect.Stream) error {
	return s.mountConversation(p, &protocol.Conversation{Stream: st, Needs: auth.ScopeRead, Opened: s.openTap,
		Received: acknowledge,
		Closing: func(t *protocol.Talk, _ error) {
			if tap, ok := t.State.(*socketTap); ok {
				tap.stop()
				<-tap.ended
			}
		}})
}

// socketTap is a tap on a WebSocket.
type socketTap struct {
	*rest.Tap
	stop  context.CancelFunc
	ended chan struct{}
}

// openTap begins to send. What is wrong with the request ends the conversation.
func (s *Server) openTap(t *protocol.Talk) error {
	q, err := protocol.ReadQuery(t.Request)
	if err != nil {
		return closeTap(err)
	}
	opening, cancel := t.LogContext()
	defer cancel()
	asked, err := s.rest.OpenTap(opening, t.Caller, q, "")
	if err != nil {
		return closeTap(err)
	}
	ctx, stop := context.WithCancel(t.Lasting())
	tap := &socketTap{asked, stop, make(chan struct{})}
	t.State = tap
	go func() {
		defer close(tap.ended)
		defer tap.Leave()
		err := tap.Follow(ctx, func(records []schema.TapRecord) error {
			frames := make([]dialect.Frame, len(records))
			for i := range records {
				frames[i].Data = rest.AppendTapRecord(nil, &records[i])
			}
			return t.Send(frames...)
		})
		if ctx.Err() == nil {
			t.Stop(live.EndCause(ctx, closeTap(err)))
		}
	}()
	return nil
}

// closeTap returns the close with which a tap ends that cannot go on.
func closeTap(err error) error {
	reason := ends.ReasonOf(err)
	out := ends.OutcomeOf(reason)
	p := ends.Problem(reason, err)
	return &protocol.Close{Code: out.Close, Reason: p.Code + ": " + p.Message, Cause: err}
}

// acknowledge deals with {"ack": "<cursor>"}, and answers nothing.
func acknowledge(t *protocol.Talk, message []byte) error {
	tap, ok := t.State.(*socketTap)
	var asked struct {
		Ack string `json:"ack"`
	}
	if err := json.Unmarshal(message, &asked); err != nil || asked.Ack == "" || !ok {
		return fmt.Errorf("the message is not {\"ack\": \"…\"}: %w", dialect.ErrBadRequest)
	}
	ctx, cancel := t.LogContext()
	defer cancel()
	err := tap.Acknowledge(ctx, asked.Ack)
	if errors.Is(err, schema.ErrBadCursor) {
		err = fmt.Errorf("%w: %w", dialect.ErrBadRequest, err)
	}
	return err
}
