package qoder

import (
	"fmt"
	"strconv"
	"time"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// sessionObject is what a session's object has besides its description (qoder §1.4, and what the types of its
// clients' libraries require).
type sessionObject struct {
	id, status       string
	turn             string // "": there was none
	created, updated string
	incremental      bool
	stats, usage     []byte
	description      []byte
}

// AppendSession appends the session's object as of the newest record.
func (p *Projector) AppendSession(dst []byte) []byte {
	t := p.threads.coordinator()
	if t == nil {
		t = &thread{}
	}
	o := sessionObject{
		id: p.session, status: "idle", turn: turnStatus(t), created: p.origin, updated: p.updated,
		incremental: p.info.incremental, stats: p.appendStats(nil, t),
		usage: appendUsage(nil, p.status.usage), description: p.info.description,
	}
	switch {
	case p.info.archived != "":
		o.status = "terminated"
	case t.running:
		o.status = "running"
	}
	return o.append(dst)
}

func turnStatus(t *thread) string {
	switch {
	case t.running:
		return "running"
	case t.stop == stopNone:
		return ""
	case t.stop == stopAction:
		return "requires_action"
	case t.stop == stopCancelled:
		return "cancelled"
	case t.stop == stopFailed:
		return "failed"
	}
	return "completed"
}

// AppendListed appends the object of a session of a list, of which less is known: where it stands is what
// the newest turn or lifecycle of its root says. A run that was not created as a session, which has no agent, has the
// dialect's setting.
func (d Dialect) AppendListed(dst []byte, r *schema.RunInfo) []byte {
	o := sessionObject{
		id: r.ID, status: "idle", created: r.Started.UTC().Format(schema.TimeLayout),
		updated:     r.Updated.UTC().Format(schema.TimeLayout),
		incremental: d.Increments, usage: appendUsage(nil, countsOf(r.Usage)), description: r.Session,
	}
	o.stats = fmt.Appendf(nil, `{"active_seconds":null,"duration_seconds":%s}`, seconds(r.Updated.Sub(r.Started)))
	if v := field(r.Session, incrementalField); v != nil || field(r.Session, "agent") != nil {
		o.incremental = string(v) == "true"
	}
	o.turn = turnInList(r)
	if o.turn == "running" {
		o.status = o.turn
	}
	if isString(field(r.Session, "archived_at")) {
		o.status = "terminated"
	}
	return o.append(dst)
}

// turnInList is turnStatus of a run in a list. Of a run for which no turn is kept its state is all that is
// known.
func turnInList(r *schema.RunInfo) string {
	turn, why := r.Turn, r.Stop
	if !r.Asked.IsZero() && (turn != schema.TurnClosed || stopOf(why) == stopEndTurn) {
		turn = schema.TurnHeld
	}
	if turn == "" {
		switch r.State {
		case "":
			return ""
		case schema.StatePaused, schema.StateAwaitingApproval:
			turn = schema.TurnHeld
		case schema.StateDone, schema.StateAborted, schema.StateError:
			turn, why = schema.TurnClosed, string(r.State)
		}
	}
	switch turn {
	case schema.TurnHeld:
		return turnStatus(&thread{stop: stopAction})
	case schema.TurnClosed:
		return turnStatus(&thread{stop: stopOf(why)})
	}
	return turnStatus(&thread{running: true})
}

func (o *sessionObject) append(dst []byte) []byte {
	d, agent := o.description, agentOf(field(o.description, "agent"))
	b := append(jsonscan.Object(dst), '{').Str("id", o.id).Str("type", "session")
	b = agent.appendID(jsonscan.Object(agent.appendJSON(b.Name("agent"))).Name("agent_id"))
	b = b.Raw("environment_id", valueOr(field(d, "environment_id"), '"', `null`)).Str("status",
		o.status).NullStr("turn_status", o.turn).
		Raw("title", valueOr(field(d, "title"), '"', `null`)).Raw("metadata", valueOr(field(d, "metadata"), '{', `{}`))
	lists := []string{"resources", "vault_ids", "memory_store_ids"}
	for i, v := range jsonscan.Values(d, lists) {
		b = b.Raw(lists[i], valueOr(v, '[', `[]`))
	}
	b = b.Bool(incrementalField, o.incremental).Raw("stats", o.stats).Raw("usage", o.usage)
	b = append(b, `,"outcome_evaluations":[],"budget":null,"deployment_id":null`...)
	b = b.Raw("archived_at", valueOr(field(d, "archived_at"), '"', `null`)).Str("created_at",
		o.created).Str("updated_at", o.updated)
	return append(appendRest(b, d, ownFields...), '}')
}

// ownFields are those of a session's object that its description does not add to as they are.
var ownFields = []string{
	"agent", "agent_id", "environment_id", "status", "turn_status", "title", "metadata", "resources", "vault_ids",
	"memory_store_ids", incrementalField, "stats", "usage", "outcome_evaluations", "budget", "deployment_id",
	"archived_at", "updated_at", "deleted_at",
}

// valueOr returns a value that begins as its kind does, and something else for all others.
func valueOr(v []byte, begins byte, or string) []byte {
	if len(v) == 0 || v[0] != begins {
		return []byte(or)
	}
	return v
}

// snapshot is what is known of an agent: what the client sent about it.
type snapshot struct {
	object []byte // JSON; nil when only the id is known
	id     []byte // a JSON string; nil when it is not known
	name   string // of a child's
}

func agentOf(v []byte) snapshot {
	switch {
	case isString(v):
		return snapshot{id: v}
	case len(v) > 0 && v[0] == '{':
		s := snapshot{object: v}
		if id := field(v, "id"); isString(id) {
			s.id = id
		}
		return s
	}
	return snapshot{}
}

// agent is the coordinator's.
func (p *Projector) agent() snapshot { return agentOf(field(p.info.description, "agent")) }

func (s snapshot) appendID(b []byte) []byte { return append(b, valueOr(s.id, '"', `null`)...) }

func (s snapshot) appendVersion(b []byte) []byte {
	if n := whole(field(s.object, "version")); n >= 0 {
		return appendInt(b, n)
	}
	return append(b, `null`...)
}

func (s snapshot) appendName(b []byte) []byte {
	if s.name != "" {
		return appendString(b, s.name)
	}
	if v := field(s.object, "name"); isString(v) {
		return append(b, v...)
	}
	return s.appendID(b)
}

// appendJSON appends the snapshot with all fields that libraries read of it.
func (s snapshot) appendJSON(dst []byte) []byte {
	b := append(jsonscan.Object(dst), '{')
	b = s.appendVersion(jsonscan.Object(s.appendID(b.Name("id"))).Str("type", "agent").Name("version"))
	b = s.appendName(b.Name("name"))
	switch model := field(s.object, "model"); {
	case isString(model):
		b = append(append(b.Name("model"), '{').Raw("id", model), '}')
	default:
		b = b.Raw("model", valueOr(model, '{', `{"id":null}`))
	}
	of := jsonscan.Fields(nil).Read(s.object)
	for _, f := range []struct {
		name, or string
		begins   byte
	}{
		{"description", `null`, '"'}, {"system", `null`, '"'}, {"tools", `[]`, '['}, {"skills", `[]`, '['},
		{"mcp_servers", `[]`, '['},
		{"multiagent", `null`, '{'}, {"execution_identity", `{"type":"service_account"}`, '{'},
	} {
		b = b.Raw(f.name, valueOr(of.Raw(f.name), f.begins, f.or))
	}
	return append(appendRest(b, s.object, agentFields...), '}')
}

var agentFields = []string{
	"version", "name", "model", "description", "system", "tools", "skills", "mcp_servers", "multiagent",
	"execution_identity",
}

// appendStats appends how long a thread has run and been there, in seconds, up to the newest record.
func (p *Projector) appendStats(b []byte, t *thread) []byte {
	active, now := t.active, clock(p.updated)
	if t.running {
		active += max(0, now.Sub(t.since))
	}
	return fmt.Appendf(b, `{"active_seconds":%s,"duration_seconds":%s}`, seconds(active),
		seconds(now.Sub(clock(t.created))))
}

// seconds writes a span with milliseconds; none is negative.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(float64(max(d, 0).Milliseconds())/1000, 'f', -1, 64)
}

// counts are those of a usage that this protocol names.
type counts struct{ input, output, cacheCreated, cacheRead int64 }

// countsOf reads a usage in whatever provider's words it was given.
func countsOf(u schema.Usage) counts {
	first := func(names ...string) int64 {
		for _, name := range names {
			if n, ok := u[name]; ok {
				return n
			}
		}
		return 0
	}
	return counts{
		input: first("input_tokens", "prompt_tokens", "promptTokenCount"),
		output: addBounded(first("output_tokens", "completion_tokens", "candidatesTokenCount"),
			u["thoughtsTokenCount"]),
		cacheCreated: first("cache_creation_input_tokens"),
		cacheRead:    first("cache_read_input_tokens", "cachedContentTokenCount"),
	}
}

func (c counts) plus(d counts) counts {
	return counts{
		input: addBounded(c.input, d.input), output: addBounded(c.output, d.output),
		cacheCreated: addBounded(c.cacheCreated, d.cacheCreated), cacheRead: addBounded(c.cacheRead, d.cacheRead),
	}
}

// addBounded stops at the greatest number that all readers of JSON take.
func addBounded(a, b int64) int64 {
	return min(a, int64(schema.MaxSeq)) + min(b, int64(schema.MaxSeq)-min(a, int64(schema.MaxSeq)))
}

func appendUsage(b []byte, n counts) []byte {
	return fmt.Appendf(b, `{"input_tokens":%d,"output_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d,`+
		`"cache_creation":null,"server_tool_use":null,"list_cost":null,"total_credits":null}`, n.input, n.output,
		n.cacheRead, n.cacheCreated)
}
