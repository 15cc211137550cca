package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// createTicket makes a ticket: a token for `?ticket=` that opens one stream of the run, once. The run
// must exist, because a ticket for one that does not would say that it does not.
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
	if _, err := s.existing(ctx, key); err != nil {
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
