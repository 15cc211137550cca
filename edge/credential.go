package edge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

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
	if c.route.stream != nil && s.cfg.Still != nil {
		s.held.add(c)
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

// holds are the callers of open streams.
type holds struct {
	mu   sync.Mutex
	open map[*hold]struct{}
}

type hold struct {
	caller auth.Caller
	end    func(error) // nil until there is something to end
}

// add puts the call's caller under watch until the call is released.
func (hs *holds) add(c *call) {
	h := &hold{caller: c.caller}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.open == nil {
		hs.open = make(map[*hold]struct{})
	}
	hs.open[h] = struct{}{}
	c.hold = h
	c.release = func() {
		hs.mu.Lock()
		defer hs.mu.Unlock()
		delete(hs.open, h)
	}
}

// watch says what to end when the hold's caller is refused. nil is none.
func (hs *holds) watch(h *hold, end func(error)) {
	if h == nil {
		return
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.end = end
}

func (hs *holds) list() []hold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	list := make([]hold, 0, len(hs.open))
	for h := range hs.open {
		list = append(list, *h)
	}
	return list
}

// recheck ends streams whose credential was revoked, until ctx ends.
func (s *Server) recheck(ctx context.Context) {
	if s.cfg.Still == nil {
		return
	}
	tick := time.NewTicker(s.cfg.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, h := range s.held.list() {
			if err := s.cfg.Still(h.caller); err != nil && h.end != nil {
				h.end(fmt.Errorf("%w: %s", auth.ErrExpired, err)) // the refusal alone would be that of a request
			}
		}
	}
}
