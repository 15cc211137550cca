package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

var errNoRun = refuse(langgraph.CodeNoSuchRun, "the thread has no such run")

// notThere reports whether an error is that there is no such thread.
func notThere(err error) bool {
	return errors.Is(err, fanout.ErrNotFound)
}

// runInfo is a run as the older API has it.
type runInfo struct {
	ID        string          `json:"run_id"`
	Thread    string          `json:"thread_id"`
	Assistant string          `json:"assistant_id"`
	Created   string          `json:"created_at"`
	Updated   string          `json:"updated_at"`
	Status    string          `json:"status"`
	Metadata  json.RawMessage `json:"metadata"`
	Strategy  string          `json:"multitask_strategy"`
}

// infoOf reads a run from the record that began it.
func infoOf(ctx context.Context, c *protocol.Call, p *langgraph.Projector, s langgraph.Stretch) (o runInfo, err error) {
	thread := c.Path("run")
	o = runInfo{ID: s.ID, Thread: thread, Status: s.Status, Metadata: json.RawMessage(`{}`), Strategy: "enqueue",
		Assistant: jsonscan.DecodeString(schema.Field(p.Session(), "agent"))}
	for r, err := range recordsKept(ctx, c, thread)(s.First-1, s.First) {
		if err != nil {
			return o, err
		}
		_, ts, _ := r.Envelope()
		o.Created = string(ts)
		if m := schema.Field(r.Payload(), "metadata"); len(m) > 0 && m[0] == '{' {
			o.Metadata = slices.Clone(m)
		}
		o.Strategy = cmp.Or(jsonscan.DecodeString(schema.Field(r.Payload(), "multitask_strategy")), o.Strategy)
		o.Assistant = cmp.Or(jsonscan.DecodeString(schema.Field(r.Payload(), "assistant_id")), o.Assistant)
	}
	if s.Last > 0 {
		o.Updated, err = stamp(ctx, c, thread, s.Last)
	}
	o.Updated = cmp.Or(o.Updated, o.Created)
	return o, err
}

// runOf returns the thread of the path and one of its runs as they stand.
func runOf(ctx context.Context, c *protocol.Call, run string) (p *langgraph.Projector, s langgraph.Stretch, err error) {
	if _, p, err = newest(ctx, c); err != nil {
		return p, s, err
	}
	s, ok := p.Find(run)
	if !ok {
		err = errNoRun
	}
	return p, s, err
}

// answerRun answers with a run of the thread of the path; to who may not read with its name.
func (a *api) answerRun(ctx context.Context, c *protocol.Call, run string) error {
	if !c.MayRead() {
		return c.ReplyJSON(map[string]string{"run_id": run, "thread_id": c.Path("run")})
	}
	p, s, err := runOf(ctx, c, run)
	if err != nil {
		return err
	}
	o, err := infoOf(ctx, c, p, s)
	if err != nil {
		return err
	}
	return c.ReplyJSON(o)
}

func (a *api) createRun(ctx context.Context, c *protocol.Call) error {
	body, err := c.Body(mediaType)
	if err != nil {
		return err
	}
	_, run, err := a.beginRun(c, body)
	if err != nil {
		return err
	}
	return a.answerRun(ctx, c, run)
}

func (a *api) getRun(ctx context.Context, c *protocol.Call) error {
	return a.answerRun(ctx, c, c.Path("part"))
}

// listRuns pages through the runs of a thread, the newest first.
func (a *api) listRuns(ctx context.Context, c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, err := q.Number("limit", 10, maxPage)
	if err != nil {
		return err
	}
	offset, err := q.Seq("offset", 0)
	if err != nil {
		return unprocessable("offset is not a number")
	}
	status, err := q.One("status")
	if err != nil {
		return err
	}
	_, p, err := newest(ctx, c)
	if err != nil {
		return err
	}
	runs := p.Runs()
	slices.Reverse(runs)
	runs = slices.DeleteFunc(runs, func(s langgraph.Stretch) bool { return status != "" && s.Status != status })
	list := []runInfo{}
	for _, s := range runs[min(int(offset), len(runs)):] {
		if len(list) == limit {
			break
		}
		o, err := infoOf(ctx, c, p, s)
		if err != nil {
			return err
		}
		list = append(list, o)
	}
	return c.ReplyJSON(list)
}

// cancelRun commands the agent to end a run; one that has ended is left alone. With wait it answers when the run has
// ended.
func (a *api) cancelRun(c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	action, err := q.One("action")
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"", "interrupt", "rollback"}, action) {
		return unprocessable("there is no action %q", action)
	}
	wait, err := q.One("wait")
	if err != nil {
		return err
	}
	run := c.Path("part")
	ctx, cancel := c.LogContext()
	defer cancel()
	if err := schema.ValidRunID(c.Path("run")); err != nil {
		return err
	}
	if err := cancelStretch(ctx, c, c.Path("run"), run, c.By([]byte(`{}`))); err != nil {
		return err
	}
	if wait != "1" && wait != "true" {
		c.Writer.WriteHeader(http.StatusAccepted)
		return nil
	}
	return a.wait(c, run, false)
}

func (a *api) runAndWait(c *protocol.Call) error {
	body, err := c.Body(mediaType)
	if err != nil {
		return err
	}
	in, run, err := a.beginRun(c, body)
	if err != nil {
		return err
	}
	if in.isCancelledOnLeave() {
		cancelWhenLeft(c, run)
	}
	return a.wait(c, run, true)
}

// wait answers with the values of a thread when a run has ended, or with nothing. Line feeds before them keep the
// connection.
func (a *api) wait(c *protocol.Call, run string, values bool) error {
	for {
		body, last, err := a.result(c, run)
		switch {
		case err != nil && c.Context().Err() != nil:
			return err // the client has left
		case err != nil && c.HasAnswered():
			body = []byte(`{"__error__":{"error":"Unavailable","message":"what became of the run cannot be had"}}`)
		case err != nil:
			return err
		case body != nil && !values:
			c.Writer.WriteHeader(http.StatusNoContent)
			return nil
		}
		if body != nil && c.HasAnswered() {
			_, _ = c.Writer.Write(body) // a client that is gone has no use for the error
			return nil
		}
		if body != nil {
			c.Reply(http.StatusOK, body)
			return nil
		}
		if err := a.waitFor(c, last, values); err != nil {
			return err
		}
	}
}

// waitFor waits for a record of the thread after last. With alive a line feed is written in each time of silence.
func (a *api) waitFor(c *protocol.Call, last schema.Seq, alive bool) error {
	for {
		ctx, cancel := context.WithTimeout(c.Context(), a.cfg.KeepAlive)
		_, err := c.Wait(ctx, c.Path("run"), last)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || c.Context().Err() != nil {
			return err
		}
		if !alive {
			continue
		}
		c.Writer.Header().Set("Content-Type", mediaType)
		_, err = c.Writer.Write([]byte("\n"))
		if err = errors.Join(err, http.NewResponseController(c.Writer).Flush()); err != nil {
			return err
		}
	}
}

// result returns what a run that has ended has come to; nil while it goes on, up to the thread's record last.
func (a *api) result(c *protocol.Call, run string) (values []byte, last schema.Seq, err error) {
	ctx, cancel := c.LogContext()
	defer cancel()
	head, p, err := newest(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	s, ok := p.Find(run)
	switch {
	case !ok:
		return nil, 0, errNoRun
	case s.Last == 0:
		return nil, head.Last, nil
	case s.Status == "error":
		values, err = json.Marshal(map[string]any{"__error__": map[string]string{"error": "RunError", "message": s.Error}})
		return values, s.Last, err
	}
	if p, err = protocol.StateAt[*langgraph.Projector](ctx, c, s.Last, whole(c.Path("run"))); err != nil {
		return nil, 0, err
	}
	state, err := stateOf(ctx, c, p, c.Path("run"))
	values = schema.Field(state, "values")
	for task := range jsonscan.Elements(schema.Field(state, "tasks")) {
		values = langgraph.WithInterrupts(values, schema.Field(task, "interrupts"))
	}
	return values, s.Last, err
}
