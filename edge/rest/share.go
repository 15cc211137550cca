package rest

import (
	"encoding/json"
	"net/http"
	"time"

	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
)

// createShare makes a share of the run: a token that reads it, and nothing else, for ?ttl=, a day by default.
func (a *API) createShare(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	q, err := c.Query()
	if err != nil {
		return err
	}
	given, err := q.One("ttl")
	if err != nil {
		return err
	}
	ttl := 24 * time.Hour
	if given != "" {
		if ttl, err = time.ParseDuration(given); err != nil || ttl < time.Second || ttl > auth.MaxShareTTL {
			return dialect.BadValue(dialect.ErrBadRequest, "ttl", given, "a duration from 1s to 720h such as 24h")
		}
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	if _, _, err := a.cfg.Runs.Locate(ctx, key); err != nil {
		return err
	}
	if a.cfg.Shares == nil {
		return ends.ErrNoRoute
	}
	if err := c.Record(ctx, audit.Shared, key.Run, "", "for "+ttl.String()); err != nil {
		return err
	}
	token, until, err := a.cfg.Shares.Issue(c.Caller, key.Run, ttl)
	if err != nil {
		return err
	}
	body, err := json.Marshal(struct {
		Share   string    `json:"share"`
		Expires time.Time `json:"expires_at"`
	}{token, until})
	if err != nil {
		return err
	}
	c.Reply(http.StatusCreated, body)
	return nil
}
