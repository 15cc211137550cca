package serve

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

func (a *api) stateRoutes() []protocol.Route {
	return []protocol.Route{
		route("GET", "/threads/{run}/state", auth.ScopeRead, a.getState),
		route("GET", "/threads/{run}/state/{part}", auth.ScopeRead, a.stateAt),
		route("POST", "/threads/{run}/state/checkpoint", auth.ScopeRead, a.stateOfCheckpoint),
		route("GET", "/threads/{run}/history", auth.ScopeRead, a.history),
		route("POST", "/threads/{run}/history", auth.ScopeRead, a.history),
	}
}

func (a *api) getState(ctx context.Context, c *protocol.Call) error {
	_, p, err := newest(ctx, c)
	if err != nil {
		return err
	}
	state, err := stateOf(ctx, c, p, c.Path("run"))
	if err == nil {
		c.Reply(http.StatusOK, state)
	}
	return err
}

// Sizes of a list of checkpoints, when none is asked for and at most.
const (
	usualCheckpoints, mostCheckpoints = 10, 1000
)

// saved is a checkpoint with the state that follows it, if one does.
type saved struct {
	id, parent, source string
	step               int64
	ts                 int64  // milliseconds since the epoch
	values             []byte // JSON; nil: none was stored
}

// checkpointsOf walks the checkpoints of a namespace, the newest first, until fn returns false.
func checkpointsOf(ctx context.Context, c *protocol.Call, thread string, namespace []string, last schema.Seq,
	fn func(saved) bool) error {
	none := 0
	req := whole(thread)
	req.Select = langgraph.ThreadFilter{Channels: []string{"checkpoints", "values"}, Namespaces: [][]string{namespace},
		Depth: &none}.Selection()
	var values []byte
	for from := (protocol.Offset{Seq: last + 1}); ; {
		h := protocol.History{Call: c, Request: req, Newest: last, Page: protocol.Page{Limit: 100}}
		if err := h.Down(ctx, from); err != nil {
			if errors.Is(err, fanout.ErrExpired) { // there are none that are kept
				return nil
			}
			return err
		}
		for _, it := range h.Items {
			at := jsonscan.Fields(nil).Read(schema.Field(it.Data, "params"))
			data := at.Raw("data")
			if string(schema.Field(it.Data, "method")) == `"values"` {
				if values == nil { // of several the newest is the thread's
					values = langgraph.StateIn(data)
				}
				continue
			}
			f := jsonscan.Fields(nil).Read(data)
			one := saved{id: f.Str("id"), parent: f.Str("parent_id"), source: f.Str("source"), values: values}
			one.step, _ = f.Integer("step")
			one.ts, _ = at.Integer("timestamp")
			if values = nil; !fn(one) {
				return nil
			}
		}
		if !h.More {
			return nil
		}
		from = h.Next
	}
}

// checkpointOf returns a checkpoint of a namespace; nil is the root's. The error is a refusal for one that is not
// there.
func checkpointOf(ctx context.Context, c *protocol.Call, thread string, namespace []string, last schema.Seq,
	id string) (
	found saved, err error) {
	err = checkpointsOf(ctx, c, thread, namespace, last, func(s saved) bool {
		found = s
		return s.id != id
	})
	if err == nil && found.id != id {
		err = refuse(langgraph.CodeNoSuchCheckpoint, "the thread has no checkpoint %.100q", id)
	}
	return found, err
}

// getValues is state.get: the state of a namespace, all of it or some of its keys.
func getValues(ctx context.Context, c *protocol.Call, thread string, raw []byte) (answer, error) {
	p, err := readParams(raw)
	if err != nil {
		return answer{}, err
	}
	namespace, err := namespaceOf(p)
	if err != nil {
		return answer{}, err
	}
	keys, err := p.texts("keys")
	if err != nil {
		return answer{}, err
	}
	head, now, err := find(ctx, c, thread)
	if err != nil {
		return answer{}, err
	}
	var at saved
	if len(namespace) == 0 {
		state, err := stateOf(ctx, c, now, thread)
		if err != nil {
			return answer{}, err
		}
		at.values, at.id = schema.Field(state,
			"values"), jsonscan.DecodeString(schema.Field(schema.Field(state, "checkpoint"), "checkpoint_id"))
	} else {
		if err := checkpointsOf(ctx, c, thread, namespace, head.Last,
			func(s saved) bool { at = s; return false }); err != nil {
			return answer{}, err
		}
		if _, known := now.LaneOf(p.raw("namespace")); !known && at.id == "" {
			return answer{}, refuse(langgraph.CodeNoSuchNamespace, "the thread has no such namespace")
		}
	}
	o := jsonscan.Object{'{'}.Raw("values", pick(at.values, keys))
	if at.id != "" {
		o = append(o.Name("checkpoint"), '{').Str("id", at.id).End()
	}
	return answer{o.End(), through(head.Last)}, nil
}

// pick returns some fields of a state; all of it for keys that are nil.
func pick(values []byte, keys []string) []byte {
	if values == nil {
		return []byte("{}")
	}
	if keys == nil {
		return values
	}
	o := jsonscan.Object{'{'}
	for i, v := range jsonscan.Values(values, keys) {
		if v != nil && !slices.Contains(keys[:i], keys[i]) {
			o = o.Raw(keys[i], v)
		}
	}
	return o.End()
}

// namespaceOf returns the namespace that a command is about; nil is the root's.
func namespaceOf(p params) (namespace []string, err error) {
	namespace, err = p.texts("namespace")
	if len(namespace) == 0 {
		namespace = nil
	}
	return namespace, err
}

// limitOf returns a limit of a list of checkpoints.
func limitOf(p params) (int, error) {
	v := p.raw("limit")
	if v == nil {
		return usualCheckpoints, nil
	}
	n, ok := jsonscan.WholeNumber(v)
	if !ok || n < 1 || n > mostCheckpoints {
		return 0, refuse(langgraph.CodeInvalidArgument, "limit is not a number from 1 to %d", mostCheckpoints)
	}
	return int(n), nil
}

// maxStates bounds the states of a page, in bytes: it ends with the one that crosses it.
const maxStates = 4 << 20

// page returns at most limit checkpoints, the newest first, those older than before alone if that is not "". It has
// fewer where their states are large.
func page(ctx context.Context, c *protocol.Call, thread string, namespace []string, last schema.Seq, limit int,
	before string) (list []saved, err error) {
	behind, size := before == "", 0
	err = checkpointsOf(ctx, c, thread, namespace, last, func(s saved) bool {
		if behind {
			list = append(list, s)
			size += len(s.values)
		}
		behind = behind || s.id == before
		return len(list) < limit && size <= maxStates
	})
	if err == nil && !behind {
		err = refuse(langgraph.CodeNoSuchCheckpoint, "the thread has no checkpoint %.100q", before)
	}
	return list, err
}

// listCheckpoints is state.listCheckpoints.
func listCheckpoints(ctx context.Context, c *protocol.Call, thread string, raw []byte) (answer, error) {
	p, err := readParams(raw)
	if err != nil {
		return answer{}, err
	}
	namespace, err1 := namespaceOf(p)
	limit, err2 := limitOf(p)
	before, err3 := p.optional(`"`, "before")
	if err := errors.Join(err1, err2, err3); err != nil {
		return answer{}, err
	}
	head, _, err := find(ctx, c, thread)
	if err != nil {
		return answer{}, err
	}
	list, err := page(ctx, c, thread, namespace, head.Last, limit, jsonscan.DecodeString(before))
	o := append(jsonscan.Object{'{'}.Name("checkpoints"), '[')
	for i, s := range list {
		if i > 0 {
			o = append(o, ',')
		}
		o = append(o, '{').Str("id", s.id).Str("timestamp", clock(s.ts)).Int("step", s.step)
		o = append(o.Name("metadata"), '{').Str("source", s.source).End().End()
	}
	return answer{append(o, `]}`...), through(head.Last)}, err
}

// clock writes a time in milliseconds since the epoch.
func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format(schema.TimeLayout) }

// history answers with the states of a thread, the newest first. One that has stored none has the one of its messages.
func (a *api) history(ctx context.Context, c *protocol.Call) error {
	body := []byte("{}")
	if c.Request.Method == http.MethodPost {
		var err error
		if body, err = c.Body("application/json"); err != nil {
			return err
		}
	}
	p, err := readParams(body)
	if err != nil {
		return err
	}
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, err1 := limitOf(p)
	if limit == usualCheckpoints {
		limit, err1 = q.Number("limit", limit, mostCheckpoints)
	}
	before, err2 := q.One("before")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if v := p.raw("before"); jsonscan.IsString(v) {
		before = jsonscan.DecodeString(v)
	} else if v != nil {
		before = jsonscan.DecodeString(schema.Field(v, "checkpoint_id")) +
			jsonscan.DecodeString(schema.Field(schema.Field(v, "configurable"), "checkpoint_id"))
	}
	if v := p.raw("metadata"); v != nil && string(bytes.TrimSpace(v)) != "{}" {
		return unprocessable("states are not filtered by metadata")
	}
	namespace, err := checkpointNamespace(p.raw("checkpoint"))
	if err != nil {
		return err
	}
	head, now, err := newest(ctx, c)
	if err != nil {
		return err
	}
	list, err := page(ctx, c, c.Path("run"), namespace, head.Last, limit, before)
	if err != nil {
		return err
	}
	v := &view{call: c, thread: c.Path("run"), namespace: namespace, now: now}
	if len(list) == 0 && before == "" && namespace == nil {
		list = []saved{{id: now.Checkpoint()}}
	}
	o := jsonscan.Object{'['}
	for i, s := range list {
		if i > 0 {
			o = append(o, ',')
		}
		if o, err = v.append(ctx, o, s, i == 0 && before == ""); err != nil {
			return err
		}
	}
	c.Reply(http.StatusOK, append(o, ']'))
	return nil
}

// checkpointNamespace returns the namespace of a checkpoint that a client names; nil is the root's.
func checkpointNamespace(checkpoint []byte) ([]string, error) {
	ns := jsonscan.DecodeString(schema.Field(checkpoint, "checkpoint_ns"))
	if ns == "" {
		return nil, nil
	}
	namespace := strings.Split(ns, "|")
	if len(namespace) > dialect.MaxList {
		return nil, refuse(langgraph.CodeInvalidArgument, "checkpoint_ns has more than %d segments", dialect.MaxList)
	}
	return namespace, nil
}

// stateAt answers with the state of a thread at a checkpoint.
func (a *api) stateAt(ctx context.Context, c *protocol.Call) error {
	return answerState(ctx, c, nil, c.Path("part"))
}

// stateOfCheckpoint is stateAt for a checkpoint of any namespace, which the body names.
func (a *api) stateOfCheckpoint(ctx context.Context, c *protocol.Call) error {
	body, err := c.Body(mediaType)
	if err != nil {
		return err
	}
	p, err := readParams(body)
	if err != nil {
		return err
	}
	id := jsonscan.DecodeString(schema.Field(p.raw("checkpoint"), "checkpoint_id"))
	if id == "" {
		return refuse(langgraph.CodeInvalidArgument, "checkpoint has no checkpoint_id")
	}
	namespace, err := checkpointNamespace(p.raw("checkpoint"))
	if err != nil {
		return err
	}
	return answerState(ctx, c, namespace, id)
}

// answerState answers with the state of a namespace at a checkpoint: the newest is the state as it stands.
func answerState(ctx context.Context, c *protocol.Call, namespace []string, id string) error {
	head, now, err := newest(ctx, c)
	if err != nil {
		return err
	}
	v := &view{call: c, thread: c.Path("run"), namespace: namespace, now: now}
	at, first := saved{id: id}, namespace == nil && id == now.Checkpoint()
	if !first {
		if at, err = checkpointOf(ctx, c, v.thread, namespace, head.Last, id); err != nil {
			return err
		}
		list, err := page(ctx, c, v.thread, namespace, head.Last, 1, "")
		if err != nil {
			return err
		}
		first = namespace != nil && list[0].id == id
	}
	o, err := v.append(ctx, nil, at, first)
	if err == nil {
		c.Reply(http.StatusOK, o)
	}
	return err
}

// view writes states of a namespace of a thread.
type view struct {
	call      *protocol.Call
	thread    string
	namespace []string
	now       *langgraph.Projector // the thread as it stands
}

// append writes a state; newest says that it is the newest of the namespace, which is as the thread stands.
func (v *view) append(ctx context.Context, o jsonscan.Object, s saved, newest bool) (jsonscan.Object, error) {
	if newest && v.namespace == nil {
		return v.now.AppendState(o, recordsKept(ctx, v.call, v.thread))
	}
	waits := []byte(`"next":[],"tasks":[]`)
	if newest {
		waits = v.now.AppendWaiting(nil, v.namespace)
	}
	return v.appendSaved(o, s, waits), nil
}

// appendSaved writes a stored state as GET …/state writes the newest. waits has the members that say what waits.
func (v *view) appendSaved(o jsonscan.Object, s saved, waits []byte) jsonscan.Object {
	ref := func(o jsonscan.Object, id string) jsonscan.Object {
		o = append(o, '{').Str("thread_id", v.thread).Str("checkpoint_ns", strings.Join(v.namespace, "|"))
		return o.Str("checkpoint_id", id).End()
	}
	o = append(append(append(o, '{').Raw("values", pick(s.values, nil)), ','), waits...)
	o = ref(o.Name("checkpoint"), s.id)
	if o = o.Name("parent_checkpoint"); s.parent == "" {
		o = append(o, "null"...)
	} else {
		o = ref(o, s.parent)
	}
	o = append(o.Name("metadata"), '{').Int("step", s.step).Str("source", s.source).End()
	return o.Str("created_at", clock(s.ts)).End()
}
