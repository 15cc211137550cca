package agentstream

import (
	"context"
	"encoding/json"

	"agentstream/schema"
)

// Run is what is known of a run beside its events. Times are the producers', RFC 3339; "" when they
// are not known.
type Run struct {
	RunID     string          `json:"run_id"`
	State     schema.RunState `json:"state"` // "" before the first run.lifecycle
	Reason    string          `json:"reason"`
	LastSeq   schema.Seq      `json:"last_seq"`
	StartedAt string          `json:"started_at"`
	UpdatedAt string          `json:"updated_at"`
	EndedAt   string          `json:"ended_at"` // "" while the run goes on
	Usage     json.RawMessage `json:"usage"`    // sums by the provider's names; nil when there are none
}

// Run asks for a run's state. The error is ErrNotFound when it has no events.
func (c *Client) Run(ctx context.Context, run string) (Run, error) {
	var r Run
	err := c.get(ctx, &r, nil, run)
	return r, err
}
