package serve

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/protocols/langgraph"
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
			Stream: dialect.Stream{Name: langgraph.StreamName, Pattern: "GET " + path, Mode: dialect.ModeD,
				Shared: true, Backlog: a.cfg.Backlog, MaxMessage: maxMessage},
			Needs: auth.ScopeRead, Subscriptions: protocol.MaxSubscriptions, Once: true, Gather: gather,
			Received: a.receive, Malformed: refuseMalformed,
		})
	}
	return list
}

// refuseMalformed refuses what is no text. What is too large ends the conversation.
func refuseMalformed(t *protocol.Talk, bad *protocol.Close) error {
	if bad.Code == 1009 {
		return bad
	}
	return sendRefusal(t, nil, refuse(langgraph.CodeInvalidArgument, "a command is a text of JSON: %s", bad.Reason))
}

// sendRefusal answers a command with an error. What is no matter of the command ends the conversation.
func sendRefusal(t *protocol.Talk, id json.RawMessage, err error) error {
	text, _, ok := errorOf(t.Call, id, err)
	if !ok {
		return err
	}
	return t.Send(dialect.Frame{Data: text})
}

// receive answers a command.
func (a *api) receive(t *protocol.Talk, message []byte) error {
	e, err := readEnvelope(message)
	if err != nil {
		return sendRefusal(t, e.ID, err)
	}
	ans, first := answer{through: -1}, []dialect.Frame(nil)
	switch e.Method {
	case "subscription.subscribe":
		ans.result, first, err = subscribe(t, e.Params)
	case "subscription.unsubscribe":
		err = unsubscribe(t, e.Params)
	case "subscription.reconnect":
		ans.result, err = reconnect(t, e.Params)
	default:
		ans, err = a.carryOut(t.Context(), t.Call, t.With, t.Path("run"), e)
	}
	if err != nil {
		return sendRefusal(t, e.ID, err)
	}
	return t.Send(slices.Concat([]dialect.Frame{{Data: appendAnswer(nil, e.ID, t.Path("run"), ans)}}, first)...)
}

// idPrefix begins the ids of subscriptions, which say their filters: "sub_NUMBER_FILTER". The number distinguishes
// those of one filter on one connection apart.
const idPrefix = "sub_"

// newID returns an id for a subscription with a filter, which is not in use.
func newID(t *protocol.Talk, of dialect.Selection) string {
	open, filter := t.Subscriptions(), base64.RawURLEncoding.EncodeToString([]byte(of.Key()))
	for n := 1; ; n++ {
		if id := fmt.Sprintf("%s%d_%s", idPrefix, n, filter); !slices.Contains(open, id) {
			return id
		}
	}
}

// filterOf reads the filter of an id. The error is a refusal.
func filterOf(id string) (f langgraph.ThreadFilter, err error) {
	number, filter, ok := strings.Cut(strings.TrimPrefix(id, idPrefix), "_")
	key, err := base64.RawURLEncoding.DecodeString(filter)
	if err == nil {
		f, err = langgraph.ReadSelection(string(key))
	}
	if !ok || err != nil || strings.Trim(number, "0123456789") != "" || number == "" || !strings.HasPrefix(id, idPrefix) {
		return f, refuse(langgraph.CodeNoSuchSubscription, "that is not the id of a subscription")
	}
	return f, nil
}

// open opens a subscription, if there is room for one more.
func open(t *protocol.Talk, id string, req dialect.Request) (live.Place, error) {
	if len(t.Subscriptions()) >= protocol.MaxSubscriptions {
		return live.Place{}, refuse(langgraph.CodeInvalidArgument,
			"there are %d subscriptions, which is as many as a connection may have", protocol.MaxSubscriptions)
	}
	return t.Subscribe(id, req)
}

// subscribe opens a subscription, and returns the result and the snapshot that its events begin with.
func subscribe(t *protocol.Talk, params []byte) (result []byte, first []dialect.Frame, err error) {
	s, err := langgraph.ParseSubscribe(params)
	if err != nil {
		return nil, nil, err
	}
	req, err := s.Request(t.Path("run"), "")
	if err != nil {
		return nil, nil, err
	}
	id := newID(t, req.Select)
	place, err := open(t, id, req)
	if err != nil {
		return nil, nil, err
	}
	if req.Newest {
		var out dialect.Frames
		now, err := protocol.StateAt[*langgraph.Projector](t.Context(), t.Call, place.After, req)
		if err == nil {
			err = now.Open(&out, place.After)
		}
		if err != nil {
			t.Unsubscribe(id)
			return nil, nil, err
		}
		first = out.List
	}
	return fmt.Appendf(nil, `{"subscription_id":%q,"replayed_through":%d%s}`, id, through(place.Last),
		gapField(place.Missed)), first, nil
}

// gapField is a field of results: how many records a client did not get because they are no longer kept.
func gapField(n schema.Seq) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(`,"missed_events":%d`, n)
}

// unsubscribe ends a subscription.
func unsubscribe(t *protocol.Talk, params []byte) error {
	var p struct {
		ID    string `json:"subscription_id"`
		Camel string `json:"subscriptionId"`
	}
	if json.Unmarshal(params, &p) != nil || p.ID+p.Camel == "" {
		return refuse(langgraph.CodeInvalidArgument, "params has no subscription_id")
	}
	if _, ok := t.Unsubscribe(p.ID + p.Camel); !ok {
		return refuse(langgraph.CodeNoSuchSubscription, "there is no such subscription")
	}
	return nil
}

// reconnect restores subscriptions, which may have been another connection's, behind the last event that the client
// has. What is no longer kept of what it has missed is counted in the result.
func reconnect(t *protocol.Talk, params []byte) ([]byte, error) {
	var p struct {
		Run   string   `json:"run_id"`
		RunID string   `json:"runId"`
		Last  string   `json:"last_event_id"`
		Camel string   `json:"lastEventId"`
		IDs   []string `json:"subscriptions"`
	}
	if json.Unmarshal(params, &p) != nil {
		return nil, refuse(langgraph.CodeInvalidArgument, "params is not an object with last_event_id and subscriptions")
	}
	if run := p.Run + p.RunID; run != "" {
		_, now, err := protocol.Newest[*langgraph.Projector](t.Context(), t.Call, dialect.Request{Run: t.Path("run")})
		if err != nil {
			return nil, err
		}
		if _, ok := now.Find(run); !ok {
			return nil, refuse(langgraph.CodeNoSuchRun, "the thread has no such run")
		}
	}
	if len(p.IDs) > protocol.MaxSubscriptions {
		return nil, refuse(langgraph.CodeInvalidArgument, "subscriptions has more than %d ids", protocol.MaxSubscriptions)
	}
	reqs := map[string]dialect.Request{}
	for _, id := range p.IDs {
		f, err := filterOf(id)
		if err != nil {
			return nil, err
		}
		if reqs[id], err = (langgraph.Subscribe{Filter: f}).Request(t.Path("run"), p.Last+p.Camel); err != nil {
			return nil, err
		}
	}
	had, lost, newest := t.Subscriptions(), schema.Seq(0), schema.Seq(0)
	for id, req := range reqs {
		if slices.Contains(had, id) {
			continue
		}
		place, err := open(t, id, req)
		if at := req.Cursor.Place.Seq; at > 0 && errors.Is(err, fanout.ErrExpired) {
			req.Cursor, req.Kept = dialect.Cursor{}, true
			if place, err = open(t, id, req); err == nil {
				place.Missed -= min(at, place.Missed)
			}
		}
		if err != nil {
			for again := range reqs {
				if !slices.Contains(had, again) {
					t.Unsubscribe(again)
				}
			}
			return nil, err
		}
		lost, newest = max(lost, place.Missed), max(newest, place.Last)
	}
	return fmt.Appendf(nil, `{"restored":%t,"replayed_through":%d%s}`, len(reqs) > 0, through(newest), gapField(lost)), nil
}
