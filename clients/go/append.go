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

// store sends a request that stores something. Without a key it makes one, so that repeats within the call are
// safe.
func (c *Client) store(ctx context.Context, r request, into any, receipt *Receipt) error {
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

// Append stores events in order and returns when they are durable. It stores them exactly once for each
// key, for up to 24 hours. With an empty key it makes one of its own: then only the repeats within this
// call are safe.
//
// The server fills in id, ts, seq and run_id where they are not set. A batch is at most 8 MiB. Events that
// fit into one pack (one lane, 1,024 events, 768 KiB) are stored all or none. Of more, the first may be
// stored when there is an error: Error.Stored says how many, and Append with the same key stores the rest.
// The error is ErrEnded when the run is over; Error.Line is the number of the refused event, from 1.
func (r *Run) Append(ctx context.Context, key string, events ...schema.Event) (Receipt, error) {
	var body []byte
	for i := range events {
		body = append(AppendNew(body, &events[i]), '\n')
	}
	return r.AppendLines(ctx, key, body)
}

// AppendLines is like Append, with events that are NDJSON already: one object a line.
func (r *Run) AppendLines(ctx context.Context, key string, ndjson []byte) (Receipt, error) {
	var receipt Receipt
	if err := schema.ValidRunID(r.id); err != nil {
		return receipt, err
	}
	req := request{target: r.url("events"), contentType: typeNDJSON, key: key, body: ndjson}
	err := r.c.store(ctx, req, &receipt, &receipt)
	return receipt, err
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

// NewRun describes the run to create.
type NewRun struct {
	RunID        string `json:"run_id,omitempty"`        // "": the server makes one
	PlanningGate string `json:"planning_gate,omitempty"` // required, preview or off (native §3.5); "" is off
	Key          string `json:"-"`                       // idempotency key; "" is one of its own

	schema.Description // title, tags and metadata
}

// CreatedRun is the answer to CreateRun.
type CreatedRun struct {
	Receipt
	RunID string          `json:"run_id"`
	State schema.RunState `json:"state"` // planning with a gate, else running
}

// CreateRun stores the first event of a run. The error is ErrExists when the run has events already.
// Append to a run that does not exist creates it too.
func (c *Client) CreateRun(ctx context.Context, in NewRun) (CreatedRun, error) {
	var r CreatedRun
	body, err := json.Marshal(in)
	if err != nil {
		return r, err
	}
	req := request{target: c.url("v1", "agent", "runs"), contentType: typeJSON, key: in.Key, body: body}
	err = c.store(ctx, req, &r, &r.Receipt)
	if err != nil {
		return r, fmt.Errorf("create a run: %w", err)
	}
	if err := schema.ValidRunID(r.RunID); err != nil {
		return r, fmt.Errorf("server made a run id: %w", err)
	}
	return r, nil
}
