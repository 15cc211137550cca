package agentstream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"agentstream/schema"
)

// Receipt holds the numbers of the stored events. Other writers' events may lie between them when
// there were many, or of several children.
type Receipt struct {
	First    schema.Seq `json:"first_seq"`
	Last     schema.Seq `json:"last_seq"`
	Replayed bool       `json:"-"` // the key was used before: this is what was stored then
}

// stored sends what stores something. An empty key is replaced by one of its own: repeating is safe
// then as well, within the call.
func (c *Client) stored(ctx context.Context, r request, into any, receipt *Receipt) error {
	r.method = http.MethodPost
	if r.key == "" {
		r.key = rand.Text()
	}
	header, err := c.call(ctx, r, into)
	if err != nil {
		return err
	}
	if receipt.First < 1 || receipt.Last < receipt.First {
		return fmt.Errorf("server acknowledged seq %d to %d, which is no range", receipt.First, receipt.Last)
	}
	receipt.Replayed = header.Get("Idempotency-Replayed") == "true"
	return nil
}

// Append stores events in order, exactly once per key (up to 24 hours); it answers when they are
// durable. Events that fit one pack (of the run itself or of one child, 1,024 events, 768 KiB) are
// stored all or none; of more, a beginning may be stored when there is an error: Error.Stored says
// how much, and Append with the same key stores the rest. Fields that are not set are filled in by the server: id, ts, seq, run_id. An
// empty key is one of its own: then only the repeats of this call are safe. A batch is at most 8 MiB.
// The error is ErrEnded when the run is over; Error.Line is the refused event, from 1.
func (c *Client) Append(ctx context.Context, run, key string, events ...schema.Event) (Receipt, error) {
	var body []byte
	for i := range events {
		body = append(AppendNew(body, &events[i]), '\n')
	}
	return c.AppendLines(ctx, run, key, body)
}

// AppendLines is Append of events that are NDJSON already: one object per line.
func (c *Client) AppendLines(ctx context.Context, run, key string, ndjson []byte) (Receipt, error) {
	var r Receipt
	if err := schema.ValidRunID(run); err != nil {
		return r, err
	}
	err := c.stored(ctx, request{target: c.runURL(run, "events"), contentType: "application/x-ndjson", key: key, body: ndjson}, &r, &r)
	return r, err
}

// AppendNew appends an event that the server has yet to number to dst: only fields that are set, and
// no line feed.
func AppendNew(dst []byte, e *schema.Event) []byte {
	field := func(name, v string) {
		if v != "" {
			quoted, _ := json.Marshal(v) // a string always encodes
			dst = append(append(append(append(dst, ',', '"'), name...), '"', ':'), quoted...)
		}
	}
	typ, _ := json.Marshal(e.Type)
	dst = append(append(dst, `{"type":`...), typ...)
	field("id", e.ID)
	field("ts", e.TS)
	field("run_id", e.RunID)
	field("child_id", e.ChildID)
	if e.Seq != 0 {
		dst = strconv.AppendInt(append(dst, `,"seq":`...), int64(e.Seq), 10)
	}
	field("turn_id", e.TurnID)
	field("cause", e.Cause)
	field("actor", e.Actor)
	if len(e.Path) > 0 {
		path, _ := json.Marshal(e.Path) // strings always encode
		dst = append(append(dst, `,"path":`...), path...)
	}
	if len(e.Extra) > 0 {
		dst = append(append(dst, ','), e.Extra...)
	}
	dst = append(dst, `,"payload":`...)
	if len(e.Payload) == 0 {
		return append(dst, "{}}"...)
	}
	return append(append(dst, e.Payload...), '}')
}

// NewRun describes the run to begin.
type NewRun struct {
	RunID        string `json:"run_id,omitempty"`        // "" lets the server mint one
	PlanningGate string `json:"planning_gate,omitempty"` // required, preview or off (native §3.5); "" is off
	Key          string `json:"-"`                       // idempotency key; "" is one of its own
}

// CreatedRun is a run that has begun.
type CreatedRun struct {
	Receipt
	RunID string          `json:"run_id"`
	State schema.RunState `json:"state"` // planning with a gate, else running
}

// CreateRun begins a run with its first event. The error is ErrExists when the run has events. A run
// may as well begin with Append.
func (c *Client) CreateRun(ctx context.Context, in NewRun) (CreatedRun, error) {
	var r CreatedRun
	body, err := json.Marshal(in)
	if err != nil {
		return r, err
	}
	err = c.stored(ctx, request{target: c.url("v1", "agent", "runs"), contentType: "application/json", key: in.Key, body: body}, &r, &r.Receipt)
	if err != nil {
		return r, fmt.Errorf("begin a run: %w", err)
	}
	if err := schema.ValidRunID(r.RunID); err != nil {
		return r, fmt.Errorf("server minted a run id: %w", err)
	}
	return r, nil
}
