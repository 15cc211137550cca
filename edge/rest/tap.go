package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// Taps follow tenants: log and archive as one history. Errors wrap schema.ErrBadCursor, ends.ErrLimited or
// fanout.ErrUnavailable. It is safe for concurrent use.
type Taps interface {
	// Follow calls emit with records, from one goroutine at a time, until ctx ends or emit fails. The first call has
	// the place alone.
	Follow(ctx context.Context, q schema.TapQuery, emit func([]schema.TapRecord) error) error
	// Place returns the cursor that is kept for a name; "" when there is none.
	Place(ctx context.Context, tenant, name string) (cursor string, err error)
	// Keep moves what is kept for a name to a cursor, and never back.
	Keep(ctx context.Context, tenant, name, cursor string) error
	// Forget removes what is kept for a name, and reports whether there was something.
	Forget(ctx context.Context, tenant, name string) (found bool, err error)
}

// tapsOfTenant bounds the taps that a tenant has open on a node: each reads every partition.
const tapsOfTenant = 8

// tapWait is after how long a tenant that has as many is to come again.
const tapWait = 5 * time.Second

// openTaps counts the taps that are open, by tenant.
type openTaps struct {
	mu sync.Mutex
	of map[string]int
}

func (o *openTaps) enter(tenant string) (leave func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[tenant] >= tapsOfTenant {
		return nil, &ends.LimitError{What: "taps at once", Verb: "open", Wait: tapWait}
	}
	if o.of == nil {
		o.of = make(map[string]int)
	}
	o.of[tenant]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.of[tenant]--
		if o.of[tenant] == 0 {
			delete(o.of, tenant)
		}
	}, nil
}

func (a *API) tapRoutes() []protocol.Route {
	route := func(pattern string, serve func(*protocol.Call) error) protocol.Route {
		return protocol.Route{Pattern: pattern, Needs: auth.ScopeRead, Serve: serve}
	}
	return []protocol.Route{
		route("GET /v1/agent/events/stream", a.tap),
		route("GET /v1/agent/taps/{tap}", a.showTap),
		route("POST /v1/agent/taps/{tap}", a.moveTap),
		route("DELETE /v1/agent/taps/{tap}", a.dropTap),
	}
}

// Tap is what a client asks for, who may see all runs of its tenant.
type Tap struct {
	a     *API
	query schema.TapQuery
	name  string // under which its place is kept; "": the client keeps it
	leave func()
}

// OpenTap reads what is asked for. last is the header Last-Event-ID. The caller leaves the tap.
func (a *API) OpenTap(ctx context.Context, caller auth.Caller, q protocol.Query, last string) (*Tap, error) {
	if err := a.mayTap(caller); err != nil {
		return nil, err
	}
	t := &Tap{a: a, query: schema.TapQuery{Tenant: caller.Tenant, Types: dialect.SplitList(q["types"])}}
	if len(t.query.Types) > dialect.MaxList {
		return nil, fmt.Errorf("types has more than %d names: %w", dialect.MaxList, dialect.ErrBadRequest)
	}
	for _, name := range t.query.Types {
		if strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			return nil, dialect.BadValue(dialect.ErrBadRequest, "types", name, "names, or beginnings of names and *")
		}
	}
	if err := t.readStart(q, last); err != nil {
		return nil, err
	}
	if err := t.place(ctx); err != nil {
		return nil, err
	}
	leave, err := a.taps.enter(caller.Tenant)
	t.leave = leave
	if err == nil {
		a.noteTap(caller)
	}
	return t, err
}

// noteTap has the audit feed say that a caller reads all runs of a tenant, or its feed.
func (a *API) noteTap(caller auth.Caller) {
	run := "*"
	if audit.IsReserved(caller.Tenant) {
		run = audit.Run
	}
	a.cfg.Audit.Open(caller, run, protocol.ViaNative)
}

// mayTap returns nil for who may read all runs of a tenant.
func (a *API) mayTap(caller auth.Caller) error {
	switch {
	case a.cfg.Taps == nil:
		return ends.ErrNoRuns
	case caller.Run != "":
		return fmt.Errorf("the credential is for one run: %w", auth.ErrForbidden)
	}
	return nil
}

// readStart reads where the tap is to begin.
func (t *Tap) readStart(q protocol.Query, last string) (err error) {
	if t.query.Cursor, err = q.One("cursor"); err != nil {
		return err
	}
	if last != "" { // an EventSource that comes back has the URL of its first request
		t.query.Cursor = last
	}
	if t.name, err = q.One("tap"); err != nil {
		return err
	}
	if t.name != "" && schema.ValidTenant(t.name) != nil {
		return fmt.Errorf("the name of a tap has 1 to 64 of the characters A-Z a-z 0-9 _ -: %w", dialect.ErrBadRequest)
	}
	from, err := q.One("from")
	switch {
	case err != nil:
	case from == "new":
		t.query.New = true
	case from != "" && from != "all":
		if t.query.From, err = q.Time("from"); err != nil {
			err = fmt.Errorf("%w; or all, or new", err)
		}
	}
	return err
}

// place finds where the tap of a name goes on. A cursor says that everything up to it has arrived.
func (t *Tap) place(ctx context.Context) (err error) {
	switch {
	case t.name == "":
	case t.query.Cursor != "":
		err = t.Acknowledge(ctx, t.query.Cursor)
	default:
		t.query.Cursor, err = t.a.cfg.Taps.Place(ctx, t.query.Tenant, t.name)
	}
	return err
}

// Acknowledge keeps a cursor on the server: the client has everything up to it. The error wraps
// dialect.ErrBadRequest for a tap without a name.
func (t *Tap) Acknowledge(ctx context.Context, cursor string) error {
	if t.name == "" {
		return fmt.Errorf("this tap has no name, and so no place on the server; ask with tap=NAME: %w", dialect.ErrBadRequest)
	}
	return t.a.cfg.Taps.Keep(ctx, t.query.Tenant, t.name, cursor)
}

// Follow calls emit with records until ctx ends or emit fails.
func (t *Tap) Follow(ctx context.Context, emit func([]schema.TapRecord) error) error {
	fresh := t.name != "" && t.query.Cursor == ""
	return t.a.cfg.Taps.Follow(ctx, t.query, func(records []schema.TapRecord) error {
		if fresh { // where it began counts, also when nothing is ever acknowledged
			if err := t.Acknowledge(ctx, records[0].Cursor); err != nil {
				return err
			}
			fresh = false
		}
		return emit(records)
	})
}

// Leave makes room for another tap.
func (t *Tap) Leave() { t.leave() }

// tap streams the events of all runs of the tenant, each with an opaque cursor: ?types= &from=all|new|TIME &cursor=
// &tap=, as server-sent events, or as JSONL with Accept: application/x-ndjson. It never ends cleanly.
func (a *API) tap(c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	opening, cancel := c.LogContext()
	t, err := a.OpenTap(opening, c.Caller, q, c.Request.Header.Get("Last-Event-ID"))
	cancel()
	if err != nil {
		return err
	}
	defer t.Leave()
	ctx, end := context.WithCancelCause(c.Request.Context())
	defer end(nil)
	l := &live.Life{Caller: c.Caller, Ctx: ctx, Cancel: end}
	if err := a.cfg.Live.Enter(l); err != nil {
		return err
	}
	defer a.cfg.Live.Leave(l)
	l.Expire()
	defer l.Stop(nil)
	out := &tapSink{a: a, c: c}
	out.lines = isForLines(c.Request.Header)
	if c.Request.Method == http.MethodHead {
		return out.head()
	}
	defer out.keepAlive(ctx, end)()
	return live.EndCause(ctx, t.Follow(ctx, out.emit))
}

// tapPlace is what is kept of a tap.
type tapPlace struct {
	Tap    string `json:"tap"`
	Cursor string `json:"cursor"`
}

// tapName checks the name in the path.
func (a *API) tapName(c *protocol.Call) (string, error) {
	name := c.Path("tap")
	if schema.ValidTenant(name) != nil {
		return "", dialect.BadValue(dialect.ErrBadRequest, "the name of a tap", name,
			"1 to 64 of the characters A-Z a-z 0-9 _ -")
	}
	return name, a.mayTap(c.Caller)
}

func (a *API) showTap(c *protocol.Call) error {
	name, err := a.tapName(c)
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	cursor, err := a.cfg.Taps.Place(ctx, c.Caller.Tenant, name)
	if err == nil && cursor == "" {
		err = fmt.Errorf("tap %s: %w", name, dialect.ErrNotFound)
	}
	if err != nil {
		return err
	}
	return c.ReplyJSON(tapPlace{name, cursor})
}

// moveTap acknowledges everything up to a cursor: {"cursor": "…"}. A place never moves back.
func (a *API) moveTap(c *protocol.Call) error {
	name, err := a.tapName(c)
	if err != nil {
		return err
	}
	body, err := c.Body("application/json")
	if err != nil {
		return err
	}
	var asked struct {
		Cursor string `json:"cursor"`
	}
	if err := json.Unmarshal(body, &asked); err != nil || asked.Cursor == "" {
		return fmt.Errorf("the body is not {\"cursor\": \"…\"}: %w", dialect.ErrBadRequest)
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	if err := a.cfg.Taps.Keep(ctx, c.Caller.Tenant, name, asked.Cursor); err != nil {
		return err
	}
	return c.ReplyJSON(tapPlace{name, asked.Cursor})
}

func (a *API) dropTap(c *protocol.Call) error {
	name, err := a.tapName(c)
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	found, err := a.cfg.Taps.Forget(ctx, c.Caller.Tenant, name)
	if err == nil && !found {
		err = fmt.Errorf("tap %s: %w", name, dialect.ErrNotFound)
	}
	if err != nil {
		return err
	}
	return c.ReplyJSON(struct {
		Removed bool `json:"removed"`
	}{true})
}
