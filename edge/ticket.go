package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// createTicket makes a ticket: a token for `?ticket=` that opens one stream of the run, or of a
// child by its own id, once. What it is for must exist: a typing error is told here and not by a
// stream that no page can read the refusal of.
func (s *Server) createTicket(c *call) error {
	if s.cfg.Tickets == nil {
		return errNoRoute
	}
	key, err := c.key()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), s.cfg.LogTimeout)
	defer cancel()
	if _, _, err := s.locate(ctx, key); err != nil {
		return err
	}
	ticket, until, err := s.cfg.Tickets.Issue(ctx, c.caller, key.Run)
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
	c.reply(http.StatusCreated, body)
	return nil
}
