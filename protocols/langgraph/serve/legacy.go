package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport/sse"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// The older API: runs of a thread that are begun, listed, streamed and waited for one by one.

func (a *api) legacyRoutes() []protocol.Route {
	waits := func(method, path string, needs auth.Scope, serve func(*protocol.Call) error) protocol.Route {
		r := route(method, path, needs, nil)
		r.Serve = serve
		return r
	}
	return []protocol.Route{
		route("POST", "/threads/{run}/runs", auth.ScopeWrite|auth.ScopeCommand, a.createRun),
		route("GET", "/threads/{run}/runs", auth.ScopeRead, a.listRuns),
		route("GET", "/threads/{run}/runs/{part}", auth.ScopeRead, a.getRun),
		waits("POST", "/threads/{run}/runs/wait", auth.ScopeRead|auth.ScopeWrite|auth.ScopeCommand, a.runAndWait),
		waits("GET", "/threads/{run}/runs/{part}/join", auth.ScopeRead, a.join),
		waits("POST", "/threads/{run}/runs/{part}/cancel", auth.ScopeCommand, a.cancelRun),
	}
}

func (a *api) legacyStreams() []protocol.Stream {
	of := func(name, pattern string) dialect.Stream {
		return dialect.Stream{Name: langgraph.StreamLegacy + name, Pattern: pattern, Transport: dialect.SSE,
			Mode: dialect.ModeD, Shared: true, Backlog: a.cfg.Backlog}
	}
	begun, joined := of(".begin", "POST /threads/{run}/runs/stream"), of("", "GET /threads/{run}/runs/{part}/stream")
	begun.Body = []string{mediaType}
	begun.Mode, joined.Mode = dialect.ModeA, dialect.ModeA // they end with what they are of
	return []protocol.Stream{
		{Stream: begun, Needs: auth.ScopeRead | auth.ScopeCommand, Begin: a.beginStream, Format: bare},
		{Stream: joined, Complete: complete, Format: bare, Admit: admitJoin},
		{Stream: of("s", "GET /threads/{run}/stream"), Format: bare},
	}
}

// admitJoin reads what is to become of the run when the client of its stream leaves.
func admitJoin(c *protocol.Call, _ *dialect.Request) error { return readLeaving(c) }

// bare has no reconnection hint: older clients make an event of it.
var bare = &sse.Format{Name: "langgraph", NoRetry: true}

// complete answers that nothing is left of a run: its clients take no stream without a body.
func complete(c *protocol.Call) error {
	c.Writer.Header().Set("Content-Type", "text/event-stream")
	c.Writer.WriteHeader(http.StatusOK)
	return nil
}

// runAsked is what a client wants to be run.
type runAsked struct {
	Assistant    string                     `json:"assistant_id"`
	Input        json.RawMessage            `json:"input"`
	Config       map[string]json.RawMessage `json:"config"`
	Metadata     json.RawMessage            `json:"metadata"`
	Command      *resumption                `json:"command"`
	Modes        json.RawMessage            `json:"stream_mode"`
	Subgraphs    bool                       `json:"stream_subgraphs"`
	Strategy     string                     `json:"multitask_strategy"`
	IfNotExists  string                     `json:"if_not_exists"`
	OnDisconnect string                     `json:"on_disconnect"`
	CheckpointID string                     `json:"checkpoint_id"`
	Checkpoint   map[string]json.RawMessage `json:"checkpoint"`

	After      float64  `json:"after_seconds"`
	Webhook    string   `json:"webhook"`
	Feedback   []string `json:"feedback_keys"`
	Durability string   `json:"durability"`

	modes  []string
	handed map[string]json.RawMessage // by their names
}

// handed are members of a request for a run that its agent is given as they are, beside config: they ask something of
// the graph, of which nothing is known here.
var handed = []string{"context", "interrupt_before", "interrupt_after", "durability", "checkpoint_during"}

// resumption is what a client answers to requests for input.
type resumption struct {
	Resume json.RawMessage `json:"resume"`
	Update json.RawMessage `json:"update"`
	Goto   json.RawMessage `json:"goto"`
}

// readRun reads the body of a request for a run.
func readRun(thread string, body []byte) (in runAsked, err error) {
	if err := readBody(body, &in); err != nil {
		return in, err
	}
	if jsonscan.IsString(in.Modes) {
		in.Modes = slices.Concat([]byte("["), in.Modes, []byte("]"))
	}
	if in.Modes != nil && json.Unmarshal(in.Modes, &in.modes) != nil {
		return in, unprocessable("stream_mode is neither a mode nor a list of modes")
	}
	if len(in.modes) == 0 {
		in.modes = []string{"values"}
	}
	if !slices.Contains([]string{"", "reject", "enqueue", "interrupt", "rollback"}, in.Strategy) {
		return in, unprocessable("there is no multitask_strategy %q", in.Strategy)
	}
	in.Strategy = cmp.Or(in.Strategy, "enqueue")
	if err := in.check(); err != nil {
		return in, err
	}
	in.handed = map[string]json.RawMessage{}
	for i, v := range jsonscan.Values(body, handed) {
		if v != nil {
			in.handed[handed[i]] = v
		}
	}
	if at := in.checkpoint(); len(at) > 0 {
		conf := map[string]json.RawMessage{}
		if v := in.Config["configurable"]; v != nil && json.Unmarshal(v, &conf) != nil {
			return in, unprocessable("config.configurable is no object")
		}
		maps.Copy(conf, at)
		v, _ := json.Marshal(conf) // it was decoded
		in.Config = maps.Clone(in.Config)
		if in.Config == nil {
			in.Config = map[string]json.RawMessage{}
		}
		in.Config["configurable"] = v
	}
	_, err = in.stream(thread, "").Request()
	return in, err
}

// check refuses what a client would wait for in vain, if it were passed over.
func (in *runAsked) check() error {
	switch {
	case !slices.Contains([]string{"", "continue", "cancel"}, in.OnDisconnect):
		return unprocessable("on_disconnect is neither continue nor cancel")
	case !slices.Contains([]string{"", "create", "reject"}, in.IfNotExists):
		return unprocessable("if_not_exists is neither create nor reject")
	case !slices.Contains([]string{"", "sync", "async", "exit"}, in.Durability):
		return unprocessable("durability is none of sync, async and exit")
	case in.After != 0:
		return unprocessable("after_seconds is not served: a run begins at once")
	case in.Webhook != "":
		return unprocessable("webhook is not served: nobody is called at the end of a run")
	case len(in.Feedback) > 0:
		return unprocessable("feedback_keys are not served: there are no URLs for feedback")
	}
	return nil
}

// isCancelledOnLeave reports whether the run is cancelled when the client that begins it leaves.
func (in *runAsked) isCancelledOnLeave() bool { return in.OnDisconnect == "cancel" }

// checkpoint is what the run begins from, as config.configurable has it.
func (in *runAsked) checkpoint() map[string]json.RawMessage {
	at := maps.Clone(in.Checkpoint)
	delete(at, "thread_id")
	if in.CheckpointID != "" {
		id, _ := json.Marshal(in.CheckpointID) // a string always encodes
		at = map[string]json.RawMessage{"checkpoint_id": id}
	}
	return at
}

func (in *runAsked) stream(thread, run string) langgraph.Legacy {
	return langgraph.Legacy{Thread: thread, Run: run, Modes: in.modes, Subgraphs: in.Subgraphs, LastEventID: "-1"}
}

// runCommand carries out a command of the protocol for the thread of the path. What it refuses as an argument
// is unprocessable here.
func (a *api) runCommand(ctx context.Context, c *protocol.Call, method string, params any) (answer, error) {
	b, err := json.Marshal(params)
	if err != nil {
		return answer{}, err
	}
	ans, err := a.carryOut(ctx, c, scopeCheck(c), c.Path("run"), envelope{Method: method, Params: b})
	var no interface{ ProblemCode() string }
	if errors.As(err, &no) && no.ProblemCode() == langgraph.CodeInvalidArgument {
		p, _ := c.Problem(err)
		err = unprocessable("%s", p.Message)
	}
	return ans, err
}

// beginRun begins the run that the body asks for, and writes into the answer's headers where it is.
func (a *api) beginRun(c *protocol.Call, body []byte) (in runAsked, run string, err error) {
	thread := c.Path("run")
	if err := schema.ValidRunID(thread); err != nil {
		return in, "", err
	}
	if in, err = readRun(thread, body); err != nil {
		return in, "", err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	_, p, err := newest(ctx, c)
	if err != nil && !(in.IfNotExists == "create" && notThere(err)) {
		return in, "", err
	}
	if resumes := in.Command; resumes != nil && len(resumes.Resume) > 0 {
		run, err = a.resume(ctx, c, p, in)
	} else {
		params := map[string]any{"assistant_id": in.Assistant, "input": in.Input, "multitask_strategy": in.Strategy,
			"config": in.Config, "metadata": in.Metadata}
		for name, v := range in.handed {
			params[name] = v
		}
		if in.Command != nil {
			params["update"], params["goto"] = in.Command.Update, in.Command.Goto
		}
		var ans answer
		ans, err = a.runCommand(ctx, c, "run.start", params)
		run = jsonscan.DecodeString(schema.Field(ans.result, "run_id"))
	}
	if err != nil {
		return in, "", err
	}
	at := fmt.Sprintf("/threads/%s/runs/%s", url.PathEscape(thread), run)
	q := url.Values{"stream_mode": in.modes, "stream_subgraphs": {strconv.FormatBool(in.Subgraphs)}}
	if in.isCancelledOnLeave() {
		q.Set("cancel_on_disconnect", "true") // also of the client that comes again
	}
	c.Header().Set("Content-Location", at)
	c.Header().Set("Location", at+"/stream?"+q.Encode())
	return in, run, nil
}

// resume answers the requests for input that wait: those that it names by their ids, or the only one. What names any
// other is no answer to it, but a conflict.
func (a *api) resume(ctx context.Context, c *protocol.Call, p *langgraph.Projector, in runAsked) (run string,
	err error) {
	var open []langgraph.Request
	if p != nil {
		open = p.Requests()
	}
	list, err := in.answers(p, open)
	if err != nil {
		return "", err
	}
	if _, err := a.runCommand(ctx, c, "input.respond", map[string]any{"responses": list}); err != nil {
		return "", err
	}
	if p, err = protocol.StateAt[*langgraph.Projector](ctx, c, c.Seq, whole(c.Path("run"))); err == nil {
		run, _ = p.Run()
	}
	return run, err
}

// answers returns the responses of input.respond that a resumption makes.
func (in *runAsked) answers(p *langgraph.Projector, open []langgraph.Request) (list []any, err error) {
	said, err := answersIn(in.Command.Resume, p, open)
	if err != nil {
		return nil, err
	}
	for _, r := range open {
		v := said[r.ID]
		if v == nil {
			continue
		}
		if len(list) == dialect.MaxList {
			return nil, unprocessable("resume answers more than %d requests", dialect.MaxList)
		}
		one := map[string]any{"namespace": json.RawMessage(r.Namespace), "interrupt_id": r.ID, "response": v,
			"update": in.Command.Update, "goto": in.Command.Goto, "config": in.Config, "metadata": in.Metadata}
		for name, v := range in.handed {
			one[name] = v
		}
		list = append(list, one)
	}
	size := len(in.Command.Update) + len(in.Command.Goto) + len(in.Metadata) + sizeOf(in.Config) + sizeOf(in.handed)
	if len(list)*size > schema.MaxPackBytes {
		return nil, unprocessable("what stands beside resume is in each of %d answers, and is too large for that", len(list))
	}
	return list, nil
}

func sizeOf(fields map[string]json.RawMessage) (n int) {
	for name, v := range fields {
		n += len(name) + len(v)
	}
	return n
}

// beginStream begins a run and streams it.
func (a *api) beginStream(c *protocol.Call, input dialect.Input) (dialect.Request, error) {
	in, run, err := a.beginRun(c, input.Body)
	if err != nil {
		return dialect.Request{}, err
	}
	if in.isCancelledOnLeave() {
		cancelWhenLeft(c, run)
	}
	return in.stream(c.Path("run"), run).Request()
}
