package edge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/schema"
)

// authorize finds out who calls and whether it may. A credential for one run does not see the others.
func (s *Server) authorize(c *call) (err error) {
	if c.route.transport() == dialect.WebSocket && !s.originAllowed(c.r) {
		// Before a ticket is used up.
		return dialect.Refuse(errOrigin, "pages of this origin open no WebSocket here; their origin can be allowed (--cors-origin)")
	}
	if c.caller, err = s.authenticate(c); err != nil {
		return err
	}
	if err := schema.ValidTenant(c.caller.Tenant); err != nil {
		// The authenticator's fault, not the client's.
		return fmt.Errorf("authenticated as %q: %s", c.caller.Tenant, err)
	}
	if !c.caller.May(c.route.needs) {
		return auth.ErrForbidden
	}
	if only := c.caller.Run; only != "" && c.path["run"] != only {
		return fmt.Errorf("credential is for run %s alone: %w", only, fanout.ErrNotFound)
	}
	return nil
}

// authenticate takes a ticket where one may stand, on a GET of a stream, and the header everywhere.
func (s *Server) authenticate(c *call) (auth.Caller, error) {
	if s.cfg.Tickets == nil || c.route.stream == nil || c.route.method != http.MethodGet {
		return s.cfg.Authenticate(c.r)
	}
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	tickets, given := query["ticket"]
	if err != nil || !given { // a query that cannot be read is refused behind the door
		return s.cfg.Authenticate(c.r)
	}
	// Nothing behind this line sees the ticket.
	query.Del("ticket")
	at := *c.r.URL
	at.RawQuery = query.Encode()
	c.r = c.r.WithContext(c.r.Context())
	c.r.URL, c.r.RequestURI = &at, at.RequestURI()
	if len(tickets) != 1 || len(c.r.Header.Values("Authorization")) != 0 {
		return auth.Caller{}, &auth.Refusal{Check: "more than one credential"}
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), s.cfg.LogTimeout)
	defer cancel()
	return s.cfg.Tickets.Redeem(ctx, tickets[0], c.path["run"])
}
