package agentstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"agentstream/schema"
)

// Commands that may be sent to a run: the last elements of their paths.
const (
	CommandApprove  = "approve_plan"
	CommandReject   = "reject_plan"
	CommandPause    = "pause"
	CommandResume   = "resume"
	CommandRedirect = "redirect"
	CommandCancel   = "cancel"
	CommandAnswer   = "answer"
	CommandMessage  = "messages"
)

var commandNames = []string{CommandApprove, CommandReject, CommandPause, CommandResume, CommandRedirect,
	CommandCancel, CommandAnswer, CommandMessage}

// Command sends a command to a run, exactly once per key; "" means a new key. payload is
// encoded as JSON and must become an object; nil is an empty one. What it becomes is an event of the
// run, which all watchers see and the agent obeys; the Receipt has its number. The error is
// ErrConflict when the state of the run forbids it.
func (c *Client) Command(ctx context.Context, run, key, name string, payload any) (Receipt, error) {
	var r Receipt
	if err := schema.ValidRunID(run); err != nil {
		return r, err
	}
	if !slices.Contains(commandNames, name) {
		return r, fmt.Errorf("command %q: want one of %s", printable(name), strings.Join(commandNames, ", "))
	}
	body := []byte("{}")
	if payload != nil {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // people read it in the log
		if err := enc.Encode(payload); err != nil {
			return r, fmt.Errorf("command %s: %w", name, err)
		}
		body = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	}
	err := c.stored(ctx, request{target: c.runURL(run, name), contentType: "application/json", key: key, body: body}, &r, &r)
	return r, err
}

// optional leaves out what is empty.
func optional(fields ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] != "" {
			m[fields[i]] = fields[i+1]
		}
	}
	return m
}

// Approve lets a run that awaits approval go on. planID may be empty: the open plan.
func (c *Client) Approve(ctx context.Context, run, planID string) (Receipt, error) {
	return c.Command(ctx, run, "", CommandApprove, optional("plan_id", planID))
}

// Reject refuses the plan. planID may be empty: the open plan; reason may be empty.
func (c *Client) Reject(ctx context.Context, run, planID, reason string) (Receipt, error) {
	return c.Command(ctx, run, "", CommandReject, optional("plan_id", planID, "reason", reason))
}

// Pause asks the agent to stop for now. reason may be empty.
func (c *Client) Pause(ctx context.Context, run, reason string) (Receipt, error) {
	return c.Command(ctx, run, "", CommandPause, optional("reason", reason))
}

// Resume lets a paused run go on.
func (c *Client) Resume(ctx context.Context, run string) (Receipt, error) {
	return c.Command(ctx, run, "", CommandResume, nil)
}

// Redirect returns the agent another instruction.
func (c *Client) Redirect(ctx context.Context, run, instruction string) (Receipt, error) {
	return c.Command(ctx, run, "", CommandRedirect, optional("instruction", instruction))
}

// Cancel asks the agent to end the run. reason may be empty.
func (c *Client) Cancel(ctx context.Context, run, reason string) (Receipt, error) {
	return c.Command(ctx, run, "", CommandCancel, optional("reason", reason))
}

// Answer answers the question of an input.requested event. answer is encoded as JSON.
func (c *Client) Answer(ctx context.Context, run, requestID string, answer any) (Receipt, error) {
	return c.Command(ctx, run, "", CommandAnswer, map[string]any{"request_id": requestID, "answer": answer})
}

// Message sends a message to a run, also after its end: then it is a follow-up. content is a text or
// content blocks, encoded as JSON.
func (c *Client) Message(ctx context.Context, run string, content any) (Receipt, error) {
	return c.Command(ctx, run, "", CommandMessage, map[string]any{"content": content})
}

// Ticket is a credential for one stream of one run that may stand in a URL, for what cannot send
// headers: EventSource and browsers' WebSockets. It is redeemed once, within a short time.
type Ticket struct {
	Ticket    string `json:"ticket"`
	ExpiresAt string `json:"expires_at"` // RFC 3339
}

// Ticket asks for one. This library needs none: it sends its token in a header.
func (c *Client) Ticket(ctx context.Context, run string) (Ticket, error) {
	var t Ticket
	if err := schema.ValidRunID(run); err != nil {
		return t, err
	}
	_, err := c.call(ctx, request{method: http.MethodPost, target: c.runURL(run, "tickets"), contentType: "application/json", body: []byte("{}")}, &t)
	return t, err
}
