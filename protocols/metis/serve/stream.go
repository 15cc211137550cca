package serve

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/protocols/metis"
	"agentstream/schema"
)

// subscription is the id of the one that a connection holds.
const subscription = "session"

// conversation is the socket of a session.
func (a *api) conversation() protocol.Conversation {
	return protocol.Conversation{
		Stream: dialect.Stream{Name: metis.StreamName, Pattern: "GET " + a.base + "/sessions/{run}/stream",
			Mode:     dialect.ModeB,
			Children: true, Shared: true, Backlog: a.cfg.Backlog, MaxMessage: maxMessage},
		Needs: auth.ScopeRead, Late: true, Subscriptions: 1,
		Patience: patience, TimedOut: protocol.Close{Code: 1008,
			Reason: closing("subscribe_timeout", "No subscribe came in time.")},
		Heartbeat: protocol.Heartbeat{Every: a.cfg.Heartbeat, Misses: misses, Send: ping},
		Opened:    checkToken, Received: receive, Ended: closeEnded,
	}
}

// checkToken turns away who has come without a token for the session.
func checkToken(t *protocol.Talk) error {
	if t.Caller.Run != t.Path("run") {
		return &protocol.Close{Code: 1008, Reason: closing("unauthorized", "A token for this session is needed."),
			Cause: auth.ErrUnauthorized}
	}
	return nil
}

// closing is the reason of a close in this protocol (8.2).
func closing(code, message string) string {
	return fmt.Sprintf(`{"code":%q,"message":%q}`, code, message)
}

// ping asks for a sign of life (3.8).
func ping(t *protocol.Talk) error { return sendNonce(t, "ping", rand.Text()) }

func sendNonce(t *protocol.Talk, typ, nonce string) error {
	text, err := json.Marshal(nonce)
	if err != nil {
		return err
	}
	return t.Send(dialect.Frame{Data: fmt.Appendf(nil, `{"type":%q,"nonce":%s}`, typ, text)})
}

// tooSlow is the error that a client gets whose queue is full (8.2).
const tooSlow = `{"code":"client_too_slow","message":"Outbound queue overflowed; reconnect with replay."}`

// closeEnded closes the socket when its subscription has ended: after the session's end, or because it cannot
// go on.
func closeEnded(_ *protocol.Talk, _ string, err error) error {
	switch {
	case err == nil:
		return &protocol.Close{Code: 1000}
	case errors.Is(err, dialect.ErrOverflow):
		return &protocol.Close{Code: 1008, Reason: tooSlow, Cause: err}
	}
	return tryAgain(err)
}

// word is a string of a client's frame; "" for any other value.
type word string

// UnmarshalJSON takes whatever comes.
func (w *word) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*string)(w)) != nil {
		*w = ""
	}
	return nil
}

// receive deals with a client's frame (4.3). What is not known of it, or not due, is passed over.
func receive(t *protocol.Talk, message []byte) error {
	var f struct {
		Type   word `json:"type"`
		Nonce  word `json:"nonce"`
		Turn   word `json:"turn_id"`
		Reason word `json:"reason"`
	}
	if !bytes.HasPrefix(bytes.TrimLeft(message, " \t\r\n"), []byte("{")) || json.Unmarshal(message, &f) != nil {
		return &protocol.Close{Code: 1008, Reason: closing("bad_frame", "A frame is not a JSON object.")}
	}
	switch f.Type {
	case "ping":
		return sendNonce(t, "pong", string(f.Nonce))
	case "subscribe":
		if len(t.Subscriptions()) == 0 {
			return subscribe(t, message)
		}
	case "cancel":
		return cancelTurn(t, string(f.Turn), string(f.Reason))
	}
	return nil
}

// cancelTurn stores the command that ends a turn, if that is in flight.
func cancelTurn(t *protocol.Talk, turn, reason string) error {
	err := t.With(auth.ScopeCommand, func() error {
		return stop(t.Context(), t.Call, t.Path("run"), turn, reason, producers.AppendOptions{})
	})
	switch {
	case err == nil || codeOf(err) != "":
		return nil
	case errors.Is(err, auth.ErrForbidden):
		return &protocol.Close{Code: 1008, Reason: closing("forbidden", "The credential does not allow to cancel."),
			Cause: err}
	}
	return tryAgain(err)
}

// tryAgain closes a socket whose client asks for what cannot be known or done now.
func tryAgain(err error) error {
	return &protocol.Close{Code: 1013, Reason: closing("unavailable", "It cannot be done now; reconnect with replay."),
		Cause: err}
}

// subscribe answers a subscribe. After a refusal the client has some time for another one.
func subscribe(t *protocol.Talk, message []byte) error {
	first, over, err := openSubscription(t, message)
	if err == nil {
		t.Await(0)
		if err := t.Send(first...); err != nil || !over {
			return err
		}
		return closeEnded(t, subscription, nil)
	}
	t.Unsubscribe(subscription)
	code := codeOf(err)
	if code == "" {
		return tryAgain(err)
	}
	t.Await(patience)
	return t.Send(dialect.Frame{Data: metis.AppendSubscribeError(nil, code, wordsOf(err))})
}

// openSubscription opens the subscription and returns what comes before its events. over: none comes after
// them.
func openSubscription(t *protocol.Talk, message []byte) (first []dialect.Frame, over bool, err error) {
	s, err := metis.ParseSubscribe(message)
	if err != nil {
		return nil, false, err
	}
	req, err := s.Request(t.Path("run"))
	if err != nil {
		return nil, false, err
	}
	ctx := t.Context()
	place, err := t.Subscribe(subscription, req)
	if err != nil {
		return nil, false, err
	}
	if req, _, err = locate(ctx, t.Call, req); err != nil {
		return nil, false, err
	}
	through := place.Last // as far as the ack counts what comes
	if req.Newest {
		through = place.After
	}
	now, err := protocol.StateAt[*metis.Projector](ctx, t.Call, through, req)
	if err != nil {
		return nil, false, err
	}
	replay, err := countMissed(t, req, now)
	if err != nil {
		return nil, false, err
	}
	first = []dialect.Frame{{Data: s.AppendAck(nil, replay)}}
	if s.Snapshot {
		snapshot, err := now.AppendSnapshot(nil, recordsKept(t, req.Run))
		if err != nil {
			return nil, false, err
		}
		first = append(first, dialect.Frame{Data: snapshot})
	}
	return first, req.Child != "" && replay == 0 && now.HasEnded(), nil
}

// recordsKept walks records of a run, without those that are no longer kept.
func recordsKept(t *protocol.Talk, run string) metis.Records {
	return func(after, through schema.Seq) iter.Seq2[schema.Record, error] {
		return func(yield func(schema.Record, error) bool) {
			for r, err := range t.Records(t.Context(), run, after, through) {
				if gone := new(fanout.ExpiredError); errors.As(err, &gone) {
					if gone.First > after+1 && gone.First <= through {
						recordsKept(t, run)(gone.First-1, through)(yield)
					}
					return
				}
				if !yield(r, err) {
					return
				}
			}
		}
	}
}

// countMissed returns how many events are between the position of a request and a state. The error is of
// metis.Refuse when they are too many.
func countMissed(t *protocol.Talk, req dialect.Request, now *metis.Projector) (n int64, err error) {
	at := req.Cursor.Place
	if at.Seq == 0 {
		return 0, nil
	}
	had, err := protocol.StateAt[*metis.Projector](t.Context(), t.Call, at.Seq-1, req)
	if err != nil {
		return 0, err
	}
	for r, err := range t.Records(t.Context(), req.Run, at.Seq-1, at.Seq) {
		if err != nil {
			return 0, err
		}
		if n, err = had.CountThrough(r, at.Slot); err != nil {
			return 0, err
		}
	}
	if n = now.Count() - n; n > metis.MaxReplay {
		return 0, metis.Refuse(metis.CodeReplayTooLarge, "Gap exceeds replay limit. Reconnect with snapshot: true.")
	}
	return n, nil
}

// codeOf returns the protocol's code for an error, "" when it has none: then the request could be right another time.
func codeOf(err error) metis.Code {
	switch code := metis.CodeOf(err); {
	case code != "":
		return code
	case errors.Is(err, fanout.ErrNotFound), errors.Is(err, dialect.ErrNotFound), errors.Is(err, schema.ErrBadID):
		return metis.CodeSessionNotFound
	case errors.Is(err, schema.ErrBadCursor), errors.Is(err, fanout.ErrExpired), errors.Is(err, fanout.ErrFuture):
		return metis.CodeCursorExpired
	}
	return ""
}

// wordsOf returns what an error says to clients.
func wordsOf(err error) string {
	var said interface {
		error
		Words() string
	}
	switch {
	case errors.As(err, &said):
		return said.Words()
	case codeOf(err) == metis.CodeSessionNotFound:
		return "There is no such session."
	case codeOf(err) == metis.CodeCursorExpired:
		return "Events behind since are no longer kept. Reconnect with snapshot: true."
	}
	return "The request is not what it must be."
}
