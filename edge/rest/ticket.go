package rest

import (
	"encoding/json"
	"net/http"
	"time"

	"agentstream/edge/protocol"
)

// createTicket makes a ticket: a token for `?ticket=` that opens one stream of the run, or of a
// child by its own id, once. What it is for must exist: a typing error is reported here and not by a
// stream that no page can read the refusal of.
func (a *API) createTicket(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	if _, _, err := a.cfg.Runs.Locate(ctx, key); err != nil {
		return err
	}
	ticket, until, err := c.Ticket(ctx, key.Run)
	if err != nil {
		return err
	}
	body, err := json.Marshal(struct {
		Ticket  string    `json:"ticket"`
		Expires time.Time `json:"expires_at"`
	}{ticket, until.UTC()})
	if err != nil {
		return err
	}
	c.Reply(http.StatusCreated, body)
	return nil
}
