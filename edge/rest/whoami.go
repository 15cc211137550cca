package rest

import (
	"time"

	"agentstream/edge/protocol"
)

// whoami answers who the caller is to this server, so that a page offers only what its credential allows.
func whoami(c *protocol.Call) error {
	out := struct {
		Tenant  string     `json:"tenant"`
		Subject *string    `json:"subject"` // null: the credential names nobody
		Scopes  []string   `json:"scopes"`
		Run     *string    `json:"run"`        // the one run that the credential is for; null: all of the tenant
		Expires *time.Time `json:"expires_at"` // null: never
	}{Tenant: c.Caller.Tenant, Scopes: c.Caller.Scopes.Names()}
	if c.Caller.Subject != "" {
		out.Subject = &c.Caller.Subject
	}
	if c.Caller.Run != "" {
		out.Run = &c.Caller.Run
	}
	if !c.Caller.Expires.IsZero() {
		at := c.Caller.Expires.UTC()
		out.Expires = &at
	}
	return c.ReplyJSON(out)
}
