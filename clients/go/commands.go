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

// Names of commands: the last elements of their paths.
const (
	CommandApprove  = "approve_plan"
	CommandReject   = "reject_plan"
	CommandPause    = "pause"
	CommandResume   = "resume"
	CommandRedirect = "redirect"
	CommandCancel   = "cancel"
	CommandAnswer   = "answer"
	CommandMessage  = "messages"
	CommandUpdate   = "update"
)

var commandNames = []string{CommandApprove, CommandReject, CommandPause, CommandResume, CommandRedirect,
	CommandCancel, CommandAnswer, CommandMessage, CommandUpdate}

// Command is a request to the agent of a run.
type Command struct {
	Name    string // CommandPause and so on
	Key     string // idempotency key; "": one of its own, so that only the repeats within one call are safe
	Payload any    // encoded as a JSON object; nil: an empty one. A child_id addresses a child.
}

// Command sends a command to the run, exactly once for each key. It becomes an event of the run, which all
// watchers see and the agent obeys; the Receipt has its number. The error is ErrConflict when the state of
// the run forbids the command.
func (r *Run) Command(ctx context.Context, cmd Command) (Receipt, error) {
	var receipt Receipt
	if err := schema.ValidRunID(r.id); err != nil {
		return receipt, err
	}
	if !slices.Contains(commandNames, cmd.Name) {
		return receipt, fmt.Errorf("command %q: want one of %s", printable(cmd.Name), strings.Join(commandNames, ", "))
	}
	body := []byte("{}")
	if cmd.Payload != nil {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // people read it in the log
		if err := enc.Encode(cmd.Payload); err != nil {
			return receipt, fmt.Errorf("command %s: %w", cmd.Name, err)
		}
		body = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	}
	req := request{target: r.url(cmd.Name), contentType: typeJSON, key: cmd.Key, body: body}
	err := r.c.store(ctx, req, &receipt, &receipt)
	return receipt, err
}

// optional makes an object of names and values, without the empty values.
func optional(fields ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] != "" {
			m[fields[i]] = fields[i+1]
		}
	}
	return m
}

// Approve approves the plan of a run that waits for it. planID may be empty: the open plan.
func (r *Run) Approve(ctx context.Context, planID string) (Receipt, error) {
	return r.Command(ctx, Command{Name: CommandApprove, Payload: optional("plan_id", planID)})
}

// Reject rejects the plan. planID may be empty: the open plan. reason may be empty.
func (r *Run) Reject(ctx context.Context, planID, reason string) (Receipt, error) {
	return r.Command(ctx, Command{Name: CommandReject, Payload: optional("plan_id", planID, "reason", reason)})
}

// Pause asks the agent to pause. reason may be empty.
func (r *Run) Pause(ctx context.Context, reason string) (Receipt, error) {
	return r.Command(ctx, Command{Name: CommandPause, Payload: optional("reason", reason)})
}

// Resume asks a paused agent to continue.
func (r *Run) Resume(ctx context.Context) (Receipt, error) {
	return r.Command(ctx, Command{Name: CommandResume})
}

// Redirect sends the agent another instruction.
func (r *Run) Redirect(ctx context.Context, instruction string) (Receipt, error) {
	return r.Command(ctx, Command{Name: CommandRedirect, Payload: optional("instruction", instruction)})
}

// Cancel asks the agent to end the run. reason may be empty.
func (r *Run) Cancel(ctx context.Context, reason string) (Receipt, error) {
	return r.Command(ctx, Command{Name: CommandCancel, Payload: optional("reason", reason)})
}

// Answer answers the question of an input.requested event. answer is encoded as JSON.
func (r *Run) Answer(ctx context.Context, requestID string, answer any) (Receipt, error) {
	return r.Command(ctx, Command{Name: CommandAnswer, Payload: map[string]any{"request_id": requestID, "answer": answer}})
}

// Message sends a message to the run. After the end of the run the message is a follow-up, which starts it
// again. content is a text or content blocks, encoded as JSON.
func (r *Run) Message(ctx context.Context, content any) (Receipt, error) {
	return r.Command(ctx, Command{Name: CommandMessage, Payload: map[string]any{"content": content}})
}

// Update changes what is said of the run: what d names, of metadata the named pairs. A Command with a payload whose
// fields are null takes them away.
func (r *Run) Update(ctx context.Context, d schema.Description) (Receipt, error) {
	return r.Command(ctx, Command{Name: CommandUpdate, Payload: d})
}

// Ticket is a credential for one stream of one run that may be part of a URL, for callers that cannot set
// headers: EventSource and WebSockets in browsers. It can be used once, within a short time.
type Ticket struct {
	Ticket    string `json:"ticket"`
	ExpiresAt string `json:"expires_at"` // RFC 3339
}

// Ticket returns a new ticket for the run. This library needs none: it sends its token in a header.
func (r *Run) Ticket(ctx context.Context) (Ticket, error) {
	var t Ticket
	if err := schema.ValidRunID(r.id); err != nil {
		return t, err
	}
	req := request{method: http.MethodPost, target: r.url("tickets"), contentType: typeJSON, body: []byte("{}")}
	_, err := r.c.call(ctx, req, &t)
	return t, err
}
