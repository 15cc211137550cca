package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/schema"
)

// Operator knows what operators ask about a node. Errors of dead letters wrap ErrNoRuns where this node has none, or
// may not see them. It is safe for concurrent use.
type Operator interface {
	// Storage returns how far the log is stored, and what of it and of a tenant's runs is lost.
	Storage(ctx context.Context, tenant string) Storage
	// DeadLetters returns the newest dead letters of a tenant, and the number of all.
	DeadLetters(ctx context.Context, tenant string, most int) (letters []DeadLetter, all int, err error)
	// Retry tries a tenant's dead letter again and returns why it stays, "" when it was stored. found is false when
	// there is none.
	Retry(ctx context.Context, tenant, id string) (stays string, found bool, err error)
	// Drop removes a tenant's dead letter, and reports whether there was one.
	Drop(ctx context.Context, tenant, id string) (found bool, err error)
}

// Storage is how far the log is stored in the archive, and what is lost for ever. What is not known is null.
type Storage struct {
	Partitions []Partition `json:"partitions"` // null: another process stores them
	Losses     []Loss      `json:"losses"`
}

// Loss is a part of the log, or of a run, that is in neither the log nor the archive. The archive records it for ever.
type Loss struct {
	Stream string    `json:"stream,omitempty"` // messages of a partition
	RunID  string    `json:"run_id,omitempty"` // events of a run
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
	Found  time.Time `json:"found_at"`
	Open   bool      `json:"open"` // false: objects have made it good
}

// Partition is one partition of the log, as far as it is stored in the archive.
type Partition struct {
	Stream      string     `json:"stream"`
	State       string     `json:"state"`        // active, or standby while another process stores it
	LagMessages *uint64    `json:"lag_messages"` // null: the log did not answer, like all four
	LagEvents   *uint64    `json:"lag_events_estimate"`
	LagSeconds  *float64   `json:"lag_seconds"`
	LagAt       *time.Time `json:"lag_at"`  // when the log was last asked
	Trouble     *string    `json:"trouble"` // the alarm, or the last error while it is retried; null: none
}

// DeadLetter is what the log has taken and the archive could not store.
type DeadLetter struct {
	ID     string     `json:"id"`
	RunID  string     `json:"run_id"`
	Seq    schema.Seq `json:"seq"` // 0: the whole message
	Stream string     `json:"stream"`
	Reason string     `json:"reason"`
	Detail string     `json:"detail"` // this, Error and Body are empty for who may not read
	Since  time.Time  `json:"since"`
	Tries  int        `json:"tries"`
	Error  string     `json:"error"` // of the last try
	Bytes  int        `json:"bytes"`
	Body   string     `json:"body"` // its beginning
}

// Facts are what a node says of itself to operators.
type Facts struct {
	Version    string           `json:"version"`
	Durability string           `json:"durability"`
	Limits     map[string]int64 `json:"limits"` // 0: no bound
}

// maxLetters bounds how many dead letters are listed. The command agentstream deadletters lists all.
const maxLetters = 20

func (a *API) operationRoutes() []protocol.Route {
	route := func(pattern string, serve func(*protocol.Call) error) protocol.Route {
		return protocol.Route{Pattern: pattern, Needs: auth.ScopeOperate, Serve: serve}
	}
	return []protocol.Route{
		route("GET /v1/agent/operations", a.operations),
		route("GET /v1/agent/deadletters", a.listDeadLetters),
		route("POST /v1/agent/deadletters/{id}/retry", a.retryDeadLetter),
		route("DELETE /v1/agent/deadletters/{id}", a.dropDeadLetter),
		{Pattern: "GET /v1/agent/audit", Needs: auth.ScopeAudit, Serve: a.ofFeed(a.auditPage)},
		{Pattern: "GET /v1/agent/audit/stream", Needs: auth.ScopeAudit, Serve: a.ofFeed(a.tap)},
	}
}

// ofFeed serves a request about the audit feed of the caller's tenant as one about a run of the feed's own tenant.
func (a *API) ofFeed(serve func(*protocol.Call) error) func(*protocol.Call) error {
	return func(c *protocol.Call) error {
		own := c.Caller.Tenant
		defer func() { c.Caller.Tenant = own }()
		c.Caller.Tenant = audit.FeedOf(own).Tenant
		c.Params = protocol.Params{{Name: "run", Value: audit.Run}}
		return serve(c)
	}
}

// auditPage is page, of a feed that may have no line yet.
func (a *API) auditPage(c *protocol.Call) error {
	err := a.page(c)
	if errors.Is(err, fanout.ErrNotFound) {
		c.Reply(http.StatusOK, []byte(`{"events":[],"next_after":0,"has_more":false}`))
		return nil
	}
	return err
}

// operations returns what this node knows of itself. What it does not know is null.
func (a *API) operations(c *protocol.Call) error {
	out := struct {
		Facts
		Storage
	}{Facts: a.cfg.Facts}
	if a.cfg.Operator != nil {
		ctx, cancel := c.LogContext()
		defer cancel()
		out.Storage = a.cfg.Operator.Storage(ctx, c.Caller.Tenant)
	}
	return c.ReplyJSON(out)
}

func (a *API) listDeadLetters(c *protocol.Call) error {
	if a.cfg.Operator == nil {
		return ends.ErrNoRuns
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	letters, all, err := a.cfg.Operator.DeadLetters(ctx, c.Caller.Tenant, maxLetters)
	if err != nil {
		return lettersError("dead letters", err)
	}
	for i := range letters {
		if !c.MayRead() { // they hold content, and so may the words of a database
			letters[i].Detail, letters[i].Error, letters[i].Body = "", "", ""
		}
	}
	return c.ReplyJSON(struct {
		Letters []DeadLetter `json:"deadletters"`
		All     int          `json:"all"`
	}{letters, all})
}

func lettersError(doing string, err error) error {
	if errors.Is(err, ends.ErrNoRuns) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, fanout.ErrUnavailable, err)
}

func (a *API) retryDeadLetter(c *protocol.Call) error {
	var stays string
	return a.onDeadLetter(c, func(ctx context.Context, id string) (found bool, err error) {
		stays, found, err = a.cfg.Operator.Retry(ctx, c.Caller.Tenant, id)
		if stays != "" && !c.MayRead() {
			stays = "it cannot be stored; why is for the scope read"
		}
		return found, err
	}, func() any {
		return struct {
			Stored bool   `json:"stored"`
			Error  string `json:"error"` // why it stays
		}{stays == "", stays}
	})
}

func (a *API) dropDeadLetter(c *protocol.Call) error {
	return a.onDeadLetter(c, func(ctx context.Context, id string) (bool, error) {
		if err := c.Record(ctx, audit.Deleted, "", "", "dead letter "+ends.Clip(id)); err != nil {
			return false, err
		}
		return a.cfg.Operator.Drop(ctx, c.Caller.Tenant, id)
	}, func() any {
		return struct {
			Dropped bool `json:"dropped"`
		}{true}
	})
}

// onDeadLetter does something with the dead letter that the path names, and answers.
func (a *API) onDeadLetter(c *protocol.Call, do func(ctx context.Context, id string) (bool, error),
	answer func() any) error {
	if a.cfg.Operator == nil {
		return ends.ErrNoRuns
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	found, err := do(ctx, c.Path("id"))
	if err != nil {
		return lettersError("dead letter", err)
	}
	if !found {
		return fmt.Errorf("dead letter %q: %w", ends.Clip(c.Path("id")), dialect.ErrNotFound)
	}
	return c.ReplyJSON(answer())
}
