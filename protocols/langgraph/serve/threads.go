package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

func (a *api) threadRoutes() []protocol.Route {
	return []protocol.Route{
		route("POST", "/threads", auth.ScopeWrite, a.create),
		route("POST", "/threads/search", auth.ScopeRead, a.search),
		route("POST", "/threads/count", auth.ScopeRead, a.search),
		route("GET", "/threads/{run}", auth.ScopeRead, a.get),
		route("PATCH", "/threads/{run}", auth.ScopeWrite, a.update),
		route("DELETE", "/threads/{run}", auth.ScopeWrite|auth.ScopeCommand, a.remove),
		route("GET", "/info", auth.ScopeRead, info),
		route("POST", "/assistants/search", auth.ScopeRead, assistants),
		route("GET", "/assistants/{assistant}", auth.ScopeRead, assistant),
		route("GET", "/assistants/{assistant}/schemas", auth.ScopeRead, schemas),
		route("GET", "/assistants/{assistant}/graph", auth.ScopeRead, graph),
	}
}

// mediaType is that of bodies.
const mediaType = "application/json"

// unprocessable refuses what is understood and not served; the older API answers that with 422.
func unprocessable(format string, args ...any) error {
	return dialect.Refuse(dialect.ErrUnprocessable, format, args...)
}

// readBody decodes a JSON object; what is not known of it is passed over.
func readBody(body []byte, into any) error {
	wrong := new(json.UnmarshalTypeError)
	if err := json.Unmarshal(body, into); errors.As(err, &wrong) && wrong.Field != "" {
		return unprocessable("%s is no %s", wrong.Field, wrong.Type.Kind())
	} else if err != nil || !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return refuse(langgraph.CodeInvalidArgument, "the body is not a JSON object")
	}
	return nil
}

// whole asks for a thread, whatever of it.
func whole(thread string) dialect.Request {
	return dialect.Request{Run: thread, Stream: langgraph.StreamName}
}

// newest returns the thread of the path as it stands.
func newest(ctx context.Context, c *protocol.Call) (schema.Head, *langgraph.Projector, error) {
	if err := schema.ValidRunID(c.Path("run")); err != nil {
		return schema.Head{}, nil, err
	}
	return protocol.Newest[*langgraph.Projector](ctx, c, whole(c.Path("run")))
}

// about are the fields of a thread that clients set.
type about struct {
	Metadata map[string]json.RawMessage `json:"metadata"`
	ThreadID string                     `json:"thread_id"`
	IfExists string                     `json:"if_exists"`
	Steps    []json.RawMessage          `json:"supersteps"`
	TTL      json.RawMessage            `json:"ttl"`
}

// readAbout reads the body of a request that sets them. What would have no effect is refused.
func readAbout(body []byte) (t about, err error) {
	if err := readBody(body, &t); err != nil {
		return t, err
	}
	if len(t.Steps) > 0 || !slices.Contains([]string{"", "raise", "do_nothing"}, t.IfExists) {
		return t, unprocessable("supersteps are not taken, and if_exists is raise or do_nothing")
	}
	if t.TTL != nil && string(t.TTL) != "null" {
		return t, unprocessable("ttl is not taken: how long threads are kept is the server's")
	}
	return t, nil
}

// payload is that of session.created or session.updated. metadata.graph_id is the agent.
func (t about) payload() []byte {
	var p struct {
		Agent    json.RawMessage            `json:"agent,omitempty"`
		Metadata map[string]json.RawMessage `json:"metadata,omitempty"`
	}
	p.Metadata = t.Metadata
	if id := t.Metadata["graph_id"]; jsonscan.IsString(id) {
		p.Agent = id
	}
	b, _ := json.Marshal(p) // it was decoded
	return b
}

// create begins a thread, or answers with the one that is there.
func (a *api) create(ctx context.Context, c *protocol.Call) error {
	opt, body, err := c.BodyWithKey(mediaType)
	if err != nil {
		return err
	}
	in, err := readAbout(body)
	if err != nil {
		return err
	}
	if in.ThreadID == "" {
		id := c.NewKeyedRun("", "thread", opt)
		in.ThreadID = id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
	}
	opt.MustBeNew, opt.Whole = true, true
	if err := schema.ValidRunID(in.ThreadID); err != nil {
		return err
	}
	_, err = c.Append(ctx, in.ThreadID, []schema.Event{{Type: schema.TypeSessionCreated, Actor: "user",
		Payload: in.payload()}}, opt)
	if err != nil && !(in.IfExists == "do_nothing" && errors.Is(err, producers.ErrExists)) {
		return err
	}
	return answerThread(ctx, c, in.ThreadID)
}

func (a *api) get(ctx context.Context, c *protocol.Call) error {
	return answerThread(ctx, c, c.Path("run"))
}

// answerThread answers with a thread as it stands; to who may not read with its name.
func answerThread(ctx context.Context, c *protocol.Call, id string) error {
	if err := schema.ValidRunID(id); err != nil {
		return err
	}
	if !c.MayRead() {
		return c.ReplyJSON(map[string]string{"thread_id": id})
	}
	head, p, err := protocol.Newest[*langgraph.Projector](ctx, c, whole(id))
	if err != nil {
		return err
	}
	state, err := stateOf(ctx, c, p, id)
	if err != nil {
		return err
	}
	began, err := stamp(ctx, c, id, 1)
	if err != nil {
		return err
	}
	updated, err := stamp(ctx, c, id, head.Last)
	if err != nil {
		return err
	}
	t := thread{ThreadID: id, Created: cmp.Or(began, updated), Updated: updated, State: updated, Status: p.Status(),
		Config: json.RawMessage(`{}`)}
	t.Metadata, t.Values = metadataOf(p.Session()), schema.Field(state, "values")
	t.Interrupts = json.RawMessage(`{}`)
	for task := range jsonscan.Elements(schema.Field(state, "tasks")) {
		if asked := schema.Field(task, "interrupts"); len(asked) > len(`[]`) {
			t.Interrupts = fmt.Appendf(nil, `{%s:%s}`, schema.Field(task, "id"), asked)
		}
	}
	return c.ReplyJSON(t)
}

// thread is one as the API has it.
type thread struct {
	ThreadID   string          `json:"thread_id"`
	Created    string          `json:"created_at"`
	Updated    string          `json:"updated_at"`
	State      string          `json:"state_updated_at"`
	Metadata   json.RawMessage `json:"metadata"`
	Status     string          `json:"status"`
	Config     json.RawMessage `json:"config"`
	Values     json.RawMessage `json:"values"`
	Interrupts json.RawMessage `json:"interrupts"`
}

func metadataOf(session []byte) json.RawMessage {
	if m := schema.Field(session, "metadata"); m != nil {
		return m
	}
	return json.RawMessage(`{}`)
}

// stateOf returns the state of a thread that p was fed.
func stateOf(ctx context.Context, c *protocol.Call, p *langgraph.Projector, id string) ([]byte, error) {
	return p.AppendState(nil, recordsKept(ctx, c, id))
}

// recordsKept walks the records of a thread; what is no longer kept is left out.
func recordsKept(ctx context.Context, c *protocol.Call, id string) langgraph.Records {
	return func(after, through schema.Seq) iter.Seq2[schema.Record, error] {
		return func(yield func(schema.Record, error) bool) {
			for from := after; from < through; {
				last, err := from, error(nil)
				for r, e := range c.Records(ctx, id, from, through) {
					if err = e; errors.Is(e, fanout.ErrExpired) {
						break
					}
					if last = r.Seq; !yield(r, e) || e != nil {
						return
					}
				}
				gone := new(fanout.ExpiredError)
				if !errors.As(err, &gone) || gone.First <= last+1 {
					return
				}
				from = gone.First - 1
			}
		}
	}
}

// stamp is the time of a record; "" when it is no longer kept.
func stamp(ctx context.Context, c *protocol.Call, id string, at schema.Seq) (string, error) {
	for r, err := range recordsKept(ctx, c, id)(at-1, at) {
		if err != nil {
			return "", err
		}
		_, ts, _ := r.Envelope()
		return string(ts), nil
	}
	return "", nil
}

// update merges metadata into a thread's.
func (a *api) update(ctx context.Context, c *protocol.Call) error {
	opt, body, err := c.BodyWithKey(mediaType)
	if err != nil {
		return err
	}
	in, err := readAbout(body)
	if err != nil {
		return err
	}
	if err := a.change(ctx, c, schema.TypeSessionUpdated, in.payload(), opt, nil); err != nil {
		return err
	}
	return answerThread(ctx, c, c.Path("run"))
}

// change appends what a client wants of the thread of the path, if allow takes it.
func (a *api) change(ctx context.Context, c *protocol.Call, typ string, payload []byte, opt producers.AppendOptions,
	allow func(*langgraph.Projector) error) error {
	if err := schema.ValidRunID(c.Path("run")); err != nil {
		return err
	}
	_, err := protocol.Change[*langgraph.Projector]{Request: whole(c.Path("run")), Options: opt, Allow: allow,
		Events: []schema.Event{{Type: typ, Actor: "user", Payload: payload}}}.Once(ctx, c)
	return err
}

// remove deletes a thread: its agent is asked to end what it does, and in this protocol the thread is not there any
// more.
func (a *api) remove(ctx context.Context, c *protocol.Call) error {
	busy := func(p *langgraph.Projector) error {
		if _, active := p.Run(); !active {
			return protocol.ErrDone
		}
		return nil
	}
	if err := a.change(ctx, c, typeCancel, c.By([]byte(`{"reason":"the thread was deleted"}`)),
		producers.AppendOptions{}, busy); err != nil {
		return err
	}
	if err := a.change(ctx, c, schema.TypeSessionDeleted, c.By([]byte(`{}`)), producers.AppendOptions{}, nil); err != nil {
		return err
	}
	c.Writer.WriteHeader(http.StatusNoContent)
	return nil
}

// query is what a search asks for.
type query struct {
	Metadata map[string]json.RawMessage `json:"metadata"`
	IDs      []string                   `json:"ids"`
	Status   string                     `json:"status"`
	Limit    *int                       `json:"limit"`
	Offset   int                        `json:"offset"`
	Order    string                     `json:"sort_order"`
	Values   map[string]json.RawMessage `json:"values"`
}

// Bounds of a search: threads of a page, and those that are looked at.
const (
	maxPage   = 1000
	maxLooked = 4000
)

// search lists threads as far as they have been persisted, by their beginning, the newest first; or counts them.
func (a *api) search(ctx context.Context, c *protocol.Call) error {
	body, err := c.Body(mediaType)
	if err != nil {
		return err
	}
	q, most := query{}, 10
	if err := readBody(body, &q); err != nil {
		return err
	}
	if q.Limit != nil {
		most = *q.Limit
	}
	if most < 0 || most > maxPage || q.Offset < 0 {
		return unprocessable("limit is not a number up to %d, or offset is below 0", maxPage)
	}
	if err := q.check(); err != nil {
		return err
	}
	if counts := strings.HasSuffix(c.Request.URL.Path, "/count"); counts {
		list, err := q.find(ctx, c, maxLooked)
		if err == nil {
			err = c.ReplyJSON(len(list))
		}
		return err
	}
	list, err := q.find(ctx, c, q.Offset+most)
	if err != nil {
		return err
	}
	return c.ReplyJSON(list[min(q.Offset, len(list)):])
}

// check refuses what a search cannot be for.
func (q query) check() error {
	if len(q.Metadata) > dialect.MaxList || len(q.IDs) > dialect.MaxList {
		return unprocessable("metadata and ids have at most %d entries", dialect.MaxList)
	}
	if !slices.Contains([]string{"", "idle", "busy", "interrupted", "error"}, q.Status) {
		return unprocessable("status is none that a thread has")
	}
	if len(q.Values) > 0 {
		return unprocessable("values are not searched: a list of threads has none")
	}
	if !slices.Contains([]string{"", "asc", "desc"}, strings.ToLower(q.Order)) {
		return unprocessable("sort_order is neither asc nor desc")
	}
	return nil
}

// find returns up to so many threads.
func (q query) find(ctx context.Context, c *protocol.Call, most int) (list []thread, err error) {
	ask := schema.RunsQuery{Sessions: true, Limit: 200, Oldest: strings.EqualFold(q.Order, "asc")}
	list = []thread{}
	wants := q.matcher()
	for looked := 0; looked < maxLooked && len(list) < most; looked += ask.Limit {
		runs, err := c.Runs(ctx, ask)
		if err != nil {
			return nil, err
		}
		for i := range runs {
			ask.After = runs[i].Cursor()
			if t := listEntry(&runs[i]); len(list) < most && wants(t) {
				list = append(list, t)
			}
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
		}
		if len(runs) < ask.Limit {
			break
		}
	}
	return list, nil
}

// matcher returns a function that reports whether a thread is what the search is for.
func (q query) matcher() func(thread) bool {
	names, values := []string{}, [][]byte{}
	for name, v := range q.Metadata {
		if string(v) != "null" {
			names, values = append(names, name), append(values, v)
		}
	}
	return func(t thread) bool {
		if q.IDs != nil && !slices.Contains(q.IDs, t.ThreadID) || q.Status != "" && q.Status != t.Status {
			return false
		}
		return len(names) == 0 || slices.EqualFunc(jsonscan.Values(t.Metadata, names), values, bytes.Equal)
	}
}

// listEntry is a thread as the list of runs has it, without its values.
func listEntry(r *schema.RunInfo) thread {
	began, updated := r.Started.UTC().Format(time.RFC3339Nano), r.Updated.UTC().Format(time.RFC3339Nano)
	t := thread{ThreadID: r.ID, Created: began, Updated: updated, State: updated, Metadata: metadataOf(r.Session),
		Config:     json.RawMessage(`{}`),
		Interrupts: json.RawMessage(`{}`), Status: "idle"}
	switch {
	case r.Waiting() != "":
		t.Status = "interrupted"
	case r.State == schema.StateError:
		t.Status = "error"
	case r.Turn == schema.TurnOpen:
		t.Status = "busy"
	}
	return t
}

// info answers what this is; clients look whether it answers.
func info(_ context.Context, c *protocol.Call) error {
	c.Reply(http.StatusOK, []byte(`{"version":"1.5.1","context":"agentstream","flags":{"assistants":true,"crons":false,"langsmith":false}}`))
	return nil
}

// An assistant is the name of an agent: whoever asks for one gets it.
func assistantOf(id string) map[string]any {
	at := time.Unix(0, 0).UTC().Format(time.RFC3339)
	return map[string]any{"assistant_id": id, "graph_id": id, "name": id, "version": 1, "config": struct{}{},
		"context": struct{}{}, "metadata": struct{}{}, "created_at": at, "updated_at": at}
}

func assistants(_ context.Context, c *protocol.Call) error {
	var q struct {
		Graph string `json:"graph_id"`
	}
	body, err := c.Body(mediaType)
	if err == nil {
		err = readBody(body, &q)
	}
	if err != nil {
		return err
	}
	list := []any{}
	if q.Graph != "" {
		list = append(list, assistantOf(q.Graph))
	}
	return c.ReplyJSON(list)
}

func assistant(_ context.Context, c *protocol.Call) error {
	return c.ReplyJSON(assistantOf(c.Path("assistant")))
}

func schemas(_ context.Context, c *protocol.Call) error {
	return c.ReplyJSON(map[string]any{"graph_id": c.Path("assistant"), "input_schema": nil, "output_schema": nil,
		"state_schema": nil, "config_schema": nil})
}

func graph(_ context.Context, c *protocol.Call) error {
	return c.ReplyJSON(map[string]any{"nodes": []any{map[string]any{"id": c.Path("assistant"), "type": "runnable"}},
		"edges": []any{}})
}
