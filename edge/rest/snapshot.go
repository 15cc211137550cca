package rest

import (
	"net/http"
	"strconv"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// snapshot answers with the fold of a run, or of a child by its own id: at its newest event, or at
// ?at=N (schema/contracts/snapshot.schema.json).
func (a *API) snapshot(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	at, err := snapshotAt(c.Request)
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	e, err := a.cfg.State.Snapshot(ctx, key, at)
	if err != nil {
		return err
	}
	c.Seq = e.Seq
	h := c.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(e.Payload)))
	c.Writer.WriteHeader(http.StatusOK)
	_, _ = c.Writer.Write(e.Payload) // a client that is gone has no use for the error
	return nil
}

func snapshotAt(r *http.Request) (schema.Seq, error) {
	q, err := protocol.ReadQuery(r)
	if err != nil || len(q["at"]) == 0 {
		return 0, err
	}
	at, err := q.Seq("at", 0)
	if err == nil && at == 0 {
		err = dialect.BadValue(dialect.ErrBadRequest, "at", "0", "a seq from 1 on")
	}
	return at, err
}
