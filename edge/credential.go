package edge

import (
	"cmp"
	"context"
	"fmt"
	"net/url"

	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// authorize finds out who calls and whether it may. A credential for one run does not see the others.
func (s *Server) authorize(c *call) (err error) {
	if c.route.transport() == dialect.WebSocket && !s.originAllowed(c.Request) {
		// Before a ticket is used up.
		return dialect.Refuse(ends.ErrOrigin, "pages of this origin open no WebSocket here; their origin can be allowed (--cors-origin)")
	}
	if c.Caller, err = s.authenticate(c); err != nil {
		return err
	}
	if err := schema.ValidTenant(c.Caller.Tenant); err != nil {
		// The authenticator's fault, not the client's.
		return fmt.Errorf("authenticated as %q: %s", c.Caller.Tenant, err)
	}
	if audit.IsReserved(c.Caller.Tenant) { // which its own tenant's callers read, with the scope audit
		return &auth.Refusal{Check: "the tenant is that of an audit feed"}
	}
	if !c.Caller.May(c.route.needs) {
		return auth.ErrForbidden
	}
	if only := c.Caller.Run; only != "" && !c.route.anywhere && c.Path("run") != only &&
		(c.route.named || !c.route.mustCheckRun()) {
		return ends.OtherRun(only)
	}
	return nil
}

// authenticate takes a ticket where one may stand, on a GET of a stream or of a conversation, and the header
// everywhere.
func (s *Server) authenticate(c *call) (auth.Caller, error) {
	kind := protocol.Ticket{}
	if p := c.Protocol; p != nil {
		kind = p.Ticket
		if err := c.takeKey(p.Key); err != nil {
			return auth.Caller{}, err
		}
	}
	name := cmp.Or(kind.Param, "ticket")
	if s.cfg.Tickets == nil || !c.route.isTicketable() {
		return s.cfg.Authenticate(c.Request)
	}
	query, err := url.ParseQuery(c.Request.URL.RawQuery)
	tickets, given := query[name]
	if err != nil || !given { // a query that cannot be read is refused behind the door
		return s.cfg.Authenticate(c.Request)
	}
	// Nothing behind this line sees the ticket.
	query.Del(name)
	at := *c.Request.URL
	at.RawQuery = query.Encode()
	c.Request = c.Request.WithContext(c.Request.Context())
	c.Request.URL, c.Request.RequestURI = &at, at.RequestURI()
	if len(tickets) != 1 || len(c.Request.Header.Values("Authorization")) != 0 {
		return auth.Caller{}, &auth.Refusal{Check: "more than one credential"}
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.cfg.LogTimeout)
	defer cancel()
	if !c.route.named {
		return s.cfg.Tickets.Of(kind.Terms).RedeemAny(ctx, tickets[0])
	}
	return s.cfg.Tickets.Of(kind.Terms).Redeem(ctx, tickets[0], c.Path("run"))
}

// takeKey moves the credential from a protocol's own header to where every authenticator looks.
func (c *call) takeKey(name string) error {
	keys := c.Request.Header[name]
	if name == "" || len(keys) == 0 {
		return nil
	}
	token, given := "Bearer "+keys[0], c.Request.Header["Authorization"]
	if len(keys) > 1 || len(given) > 1 || len(given) == 1 && given[0] != token {
		return &auth.Refusal{Check: "more than one credential"}
	}
	c.Request = c.Request.WithContext(c.Request.Context())
	c.Request.Header = c.Request.Header.Clone()
	c.Request.Header.Del(name)
	c.Request.Header["Authorization"] = []string{token}
	return nil
}
