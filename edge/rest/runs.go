package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/runs"
	"agentstream/producers"
	"agentstream/schema"
)

// newRun is the body of POST /v1/agent/runs. Fields that are not known are passed over.
type newRun struct {
	RunID        *string `json:"run_id"`
	PlanningGate *string `json:"planning_gate"`

	Title    json.RawMessage `json:"title"`
	Tags     json.RawMessage `json:"tags"`
	Metadata json.RawMessage `json:"metadata"`
}

// readNewRun reads the body, which counts as one event against the tenant's limits.
func readNewRun(c *protocol.Call) (in newRun, err error) {
	body, err := c.Body("application/json", "text/plain")
	if err == nil {
		err = c.Spend(1, int64(len(body)))
	}
	if err == nil {
		err = decodeObject(body, &in)
	}
	return in, err
}

// createRun begins a run with its first event. Beginning one is optional: a run may as well begin
// with the first event that is appended to it.
func (a *API) createRun(c *protocol.Call) error {
	opt, err := protocol.ParseKey("Idempotency-Key", c.Request.Header["Idempotency-Key"])
	if err != nil {
		return err
	}
	opt.MustBeNew = true
	in, err := readNewRun(c)
	if err != nil {
		return err
	}
	state, first, err := a.firstEvents(c, &in)
	if err != nil {
		return err
	}
	run := a.ids.Run(time.Now())
	switch {
	case in.RunID != nil:
		run = *in.RunID
	case opt.IdempotencyKey != "":
		// The key's scope is a run, so a repeat must name the same one without knowing it.
		sum := sha256.Sum256([]byte(c.Caller.Tenant + "\x00" + opt.IdempotencyKey))
		run = schema.RunPrefix + hex.EncodeToString(sum[:16])
	}
	c.Params = protocol.Params{{Name: "run", Value: run}}
	return a.beginRun(c, state, first, opt)
}

// putRun begins the run of the path unless it exists: what a client may repeat until it is answered. What
// it answers for a run that exists is where that stands.
func (a *API) putRun(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	in, err := readNewRun(c)
	if err != nil {
		return err
	}
	if in.RunID != nil && *in.RunID != key.Run {
		return fmt.Errorf("run_id is not that of the path: %w", dialect.ErrBadRequest)
	}
	state, first, err := a.firstEvents(c, &in)
	if err != nil {
		return err
	}
	err = a.beginRun(c, state, first, producers.AppendOptions{MustBeNew: true})
	if !errors.Is(err, producers.ErrExists) {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	src, head, err := a.cfg.Runs.Locate(ctx, key)
	if err != nil {
		return err
	}
	at := runSummary{LastSeq: head.Last, State: head.State}
	if src.Child != "" {
		if at, err = a.childSummary(ctx, src, head); err != nil {
			return err
		}
	}
	c.Reply(http.StatusOK, fmt.Appendf(nil, `{"first_seq":1,"last_seq":%d,"run_id":%q,"state":%q}`, at.LastSeq, key.Run,
		at.State))
	return nil
}

// beginRun stores the first events of the run of the path.
func (a *API) beginRun(c *protocol.Call, state schema.RunState, first []schema.Event,
	opt producers.AppendOptions) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	c.Header().Set("Location", "/v1/agent/runs/"+key.Run)
	extra := fmt.Appendf(nil, `,"run_id":%q,"state":%q`, key.Run, state)
	err = a.store(c, key, first, opt, http.StatusCreated, extra)
	if err != nil {
		c.Header().Del("Location")
	}
	return err
}

// firstEvents returns the first event, and the one that describes the run, by the body or else by the headers.
func (a *API) firstEvents(c *protocol.Call, in *newRun) (schema.RunState, []schema.Event, error) {
	state, first, err := in.firstEvent()
	if err != nil {
		return "", nil, err
	}
	said, err := a.describe(c.Request.Header, "")
	if err != nil {
		return "", nil, err
	}
	fields := make(map[string]json.RawMessage, 3)
	for name, v := range map[string]json.RawMessage{"title": in.Title, "tags": in.Tags, "metadata": in.Metadata} {
		if v != nil && string(v) != "null" {
			fields[name] = v
		}
	}
	if len(fields) > 0 {
		e, err := describeBy(fields)
		if err != nil {
			return "", nil, err
		}
		said = []schema.Event{e}
	}
	return state, append([]schema.Event{first}, said...), nil
}

// firstEvent returns the first event. A run with a planning gate plans first (native §3.5): with "required" it
// then waits for approval, with "preview" it goes on.
func (in *newRun) firstEvent() (schema.RunState, schema.Event, error) {
	payload := struct {
		State        schema.RunState `json:"state"`
		Reason       *string         `json:"reason"`
		PlanningGate *string         `json:"planning_gate,omitempty"`
	}{State: schema.StateRunning}
	if in.PlanningGate != nil {
		switch *in.PlanningGate {
		case "required", "preview":
			payload.State, payload.PlanningGate = schema.StatePlanning, in.PlanningGate
		case "off":
		default:
			return "", schema.Event{}, fmt.Errorf("planning_gate is not required, preview or off: %w", dialect.ErrBadRequest)
		}
	}
	b, err := json.Marshal(payload)
	return payload.State, schema.Event{Type: schema.TypeRunLifecycle, Payload: b}, err
}

// decodeObject reads an optional JSON object. What stands in fields that nobody reads must be UTF-8 as well, which
// encoding/json does not ask for.
func decodeObject(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	if !utf8.Valid(body) {
		return fmt.Errorf("body is not UTF-8: %w", dialect.ErrBadRequest)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("body is not the JSON object that is expected: %w", dialect.ErrBadRequest)
	}
	return nil
}

// runSummary is the answer of GET /v1/agent/runs/{run}. Times are the producers'.
type runSummary struct {
	RunID     string          `json:"run_id"`
	State     schema.RunState `json:"state"`
	LastSeq   schema.Seq      `json:"last_seq"`
	StartedAt *string         `json:"started_at"` // null when the first event is no longer kept
	UpdatedAt *string         `json:"updated_at"`
	EndedAt   *string         `json:"ended_at"` // null while the run goes on
}

// summary returns what is known of a run without reading it, or of a child by its own id, whose root is read.
func (a *API) summary(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	src, head, err := a.cfg.Runs.Locate(ctx, key)
	if err != nil {
		return err
	}
	var out runSummary
	if src.Child != "" {
		out, err = a.childSummary(ctx, src, head)
	} else {
		out, err = a.rootSummary(ctx, key, head)
	}
	if err != nil {
		return err
	}
	return c.ReplyJSON(out)
}

func (a *API) rootSummary(ctx context.Context, key schema.RunKey, head schema.Head) (out runSummary, err error) {
	out = runSummary{RunID: key.Run, State: head.State, LastSeq: head.Last}
	if out.StartedAt, err = a.cfg.Runs.TimeOf(ctx, key, 1, head.Last); err != nil {
		return out, err
	}
	if out.UpdatedAt, err = a.cfg.Runs.TimeOf(ctx, key, head.Last, head.Last); err != nil {
		return out, err
	}
	if head.State.Final() {
		out.EndedAt = out.UpdatedAt
	}
	return out, nil
}

// childSummary is the summary of a child in its own numbers. It is over when its root is.
func (a *API) childSummary(ctx context.Context, src runs.Source, head schema.Head) (runSummary, error) {
	out := runSummary{RunID: src.Child}
	ended := head.State.Final()
	for r, err := range a.cfg.Runs.Walk(ctx, src, 0, schema.MaxSeq) {
		if err != nil {
			return out, err
		}
		e, err := r.Event()
		if err != nil {
			return out, fmt.Errorf("child %s, seq %d: %w: %w", src.Child, r.Seq, schema.ErrBadPack, err)
		}
		if out.LastSeq = r.Seq; out.StartedAt == nil {
			out.StartedAt = &e.TS
		}
		out.UpdatedAt = &e.TS
		if e.Type == schema.TypeRunLifecycle {
			l, err := schema.ParseLifecycle(e.Payload)
			if err != nil {
				return out, fmt.Errorf("child %s, seq %d: %w: %w", src.Child, r.Seq, schema.ErrBadPack, err)
			}
			out.State = l.State
		}
	}
	if out.LastSeq == 0 {
		return out, runs.ErrNoChild
	}
	if ended || out.State.Final() {
		out.EndedAt = out.UpdatedAt
	}
	return out, nil
}
