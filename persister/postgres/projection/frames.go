package projection

import (
	"time"

	"agentstream/schema"
)

// Frames holds rows of agent_run_messages, agent_run_tool_calls and agent_run_usage, column by column. Each row is made
// of one event. Add takes only events that are stored in this transaction and were not stored before. The zero Frames
// is ready to use, by one goroutine at a time.
type Frames struct {
	messages, starts, ends places

	messageKind, messageID, role, model, stop []string
	startModel                                []string

	reported                             []bool
	input, output, cacheRead, cacheWrite []int64
	cost                                 []float64

	begun, ended calls
	late         calls // of begun, those whose ends may be stored already

	named []named
}

// calls holds rows of agent_run_tool_calls: starts or ends of calls.
type calls struct {
	places
	id, tool, outcome []string
	duration          []float64
}

// places holds the columns that all three tables have.
type places struct {
	tenant, run, lane []string
	day, ts           []time.Time
	seq               []int64
}

// Place identifies one event.
type Place struct {
	Key  schema.RunKey
	Lane string    // "" is the run itself
	Day  time.Time // of the run
	TS   time.Time
	Seq  schema.Seq
	New  bool // everything that is stored of the run came before it
}

func (p *places) add(at *Place) {
	p.tenant, p.run, p.lane = append(p.tenant, at.Key.Tenant), append(p.run, at.Key.Run), append(p.lane, at.Lane)
	p.day, p.ts, p.seq = append(p.day, at.Day), append(p.ts, at.TS), append(p.seq, int64(at.Seq))
}

// IsFrame reports whether the views read of events of a type.
func IsFrame(typ string) bool {
	switch typ {
	case schema.TypeMessageStart, schema.TypeMessageEnd, schema.TypeCommandMessage, schema.TypeToolStart, schema.TypeToolEnd:
		return true
	}
	return false
}

// Add adds the rows of an event, and keeps at. Fields of the payload that have an unexpected form count as missing.
func (f *Frames) Add(at *Place, typ string, payload []byte) {
	p := peek(payload)
	switch typ {
	case schema.TypeCommandMessage:
		f.message(at, "user", p.name("message_id"), "user", "", "")
	case schema.TypeMessageStart:
		id, model := p.name("message_id"), p.name("model")
		f.message(at, "start", id, p.name("role"), model, "")
		f.name(at, "start", id, false)
		if !at.New {
			f.starts.add(at)
			f.startModel = append(f.startModel, model)
		}
	case schema.TypeMessageEnd:
		id := p.name("message_id")
		f.message(at, "end", id, "", "", p.name("stop_reason"))
		f.name(at, "end", id, false)
		f.ends.add(at)
		t := tokensOf(p)
		f.reported, f.cost = append(f.reported, t.reported), append(f.cost, t.cost)
		f.input, f.output = append(f.input, t.input), append(f.output, t.output)
		f.cacheRead, f.cacheWrite = append(f.cacheRead, t.cacheRead), append(f.cacheWrite, t.cacheWrite)
	case schema.TypeToolStart:
		id, tool := p.id("call_id"), p.name("tool")
		f.begun.add(at, id, tool, "", unknown)
		f.name(at, "start", id, true)
		if !at.New {
			f.late.add(at, id, tool, "", unknown)
		}
	case schema.TypeToolEnd:
		outcome := map[string]string{"true": "ok", "false": "failed"}[string(p.Raw("ok"))]
		took, ok := p.number("duration_ms")
		if !ok {
			took = unknown
		}
		id := p.id("call_id")
		f.ended.add(at, id, "", outcome, took)
		f.name(at, "end", id, true)
	}
}

func (f *Frames) message(at *Place, kind, id, role, model, stop string) {
	f.messages.add(at)
	f.messageKind, f.messageID = append(f.messageKind, kind), append(f.messageID, id)
	f.role, f.model, f.stop = append(f.role, role), append(f.model, model), append(f.stop, stop)
}

func (c *calls) add(at *Place, id, tool, outcome string, took float64) {
	c.places.add(at)
	c.id, c.tool, c.outcome, c.duration = append(c.id, id), append(c.tool, tool), append(c.outcome,
		outcome), append(c.duration, took)
}

const insertMessages = `
insert into agent_run_messages (koder_user_id, run_id, lane, run_day, ts, seq, kind, message_id, role, model, stop_reason)
select * from unnest($1::text[], $2::text[], $3::text[], $4::date[], $5::timestamptz[], $6::bigint[], $7::text[], $8::text[],
	$9::text[], $10::text[], $11::text[])
on conflict do nothing`

// linkUsage corrects usage that was stored before the message.start to which it belongs. What is new has none.
const linkUsage = `
update agent_run_usage u set start_seq = x.seq, model = x.model
from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[]) as x(t, r, lane, seq, model)
	cross join lateral (select coalesce((select n.seq from agent_run_messages n
		where n.koder_user_id = x.t and n.run_id = x.r and n.lane = x.lane and n.kind = 'start' and n.seq > x.seq
		order by n.seq limit 1), 9223372036854775807) as seq) n
where u.koder_user_id = x.t and u.run_id = x.r and u.seq > x.seq and u.seq < n.seq and coalesce(u.child_id, '') = x.lane`

// insertUsage runs after insertMessages, whose rows it reads.
const insertUsage = `
insert into agent_run_usage (koder_user_id, run_id, child_id, day, seq, start_seq, model, reported,
	input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost)
select x.t, x.r, nullif(x.lane, ''), (x.ts at time zone 'UTC')::date, x.seq, coalesce(s.seq, 0), coalesce(s.model, ''), x.reported,
	x.input, x.output, x.cache_read, x.cache_write, nullif(x.cost, -1)
from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::bigint[], $6::boolean[], $7::bigint[], $8::bigint[],
	$9::bigint[], $10::bigint[], $11::float8[]) as x(t, r, lane, ts, seq, reported, input, output, cache_read, cache_write, cost)
left join lateral (select s.seq, s.model from agent_run_messages s
	where s.koder_user_id = x.t and s.run_id = x.r and s.lane = x.lane and s.kind = 'start' and s.seq < x.seq
	order by s.seq desc limit 1) s on true
on conflict do nothing`

const insertCalls = `
insert into agent_run_tool_calls (koder_user_id, run_id, lane, run_day, ts, seq, kind, call_id, tool, outcome)
select t, r, lane, d, ts, seq, 'start', call, tool, ''
from unnest($1::text[], $2::text[], $3::text[], $4::date[], $5::timestamptz[], $6::bigint[], $7::text[], $8::text[])
	as x(t, r, lane, d, ts, seq, call, tool)
on conflict do nothing`

// linkCalls corrects ends of calls that were stored before their tool.start. What is new has none.
const linkCalls = `
update agent_run_tool_calls e set start_seq = x.seq, tool = x.tool, took_ms = coalesce(e.duration_ms, extract(epoch from e.ts - x.ts) * 1000)
from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::bigint[], $6::text[], $7::text[]) as x(t, r, lane, ts, seq, call, tool)
	cross join lateral (select coalesce((select n.seq from agent_run_tool_calls n
		where n.koder_user_id = x.t and n.run_id = x.r and n.lane = x.lane and n.call_id = x.call and n.kind = 'start' and n.seq > x.seq
		order by n.seq limit 1), 9223372036854775807) as seq) n
where e.koder_user_id = x.t and e.run_id = x.r and e.lane = x.lane and e.call_id = x.call and e.kind = 'end'
	and e.seq > x.seq and e.seq < n.seq and e.start_seq <> x.seq`

// insertCallEnds runs after insertCalls, whose rows it reads.
const insertCallEnds = `
insert into agent_run_tool_calls (koder_user_id, run_id, lane, run_day, ts, seq, kind, call_id, tool, outcome, duration_ms, start_seq, took_ms)
select x.t, x.r, x.lane, x.d, x.ts, x.seq, 'end', x.call, coalesce(s.tool, ''), x.outcome, nullif(x.took, -1), coalesce(s.seq, 0),
	case when s.seq is not null then coalesce(nullif(x.took, -1), extract(epoch from x.ts - s.ts) * 1000) end
from unnest($1::text[], $2::text[], $3::text[], $4::date[], $5::timestamptz[], $6::bigint[], $7::text[], $8::text[], $9::float8[])
	as x(t, r, lane, d, ts, seq, call, outcome, took)
left join lateral (select s.seq, s.ts, s.tool from agent_run_tool_calls s
	where s.koder_user_id = x.t and s.run_id = x.r and s.lane = x.lane and s.call_id = x.call and s.kind = 'start' and s.seq < x.seq
	order by s.seq desc limit 1) s on true
on conflict do nothing`

// Each calls do with the statements that store the rows and their arguments, in the order in which they must run.
func (f *Frames) Each(do func(text string, args ...any)) {
	if m := &f.messages; len(m.seq) > 0 {
		do(insertMessages, m.tenant, m.run, m.lane, m.day, m.ts, m.seq, f.messageKind, f.messageID, f.role, f.model, f.stop)
	}
	if s := &f.starts; len(s.seq) > 0 {
		do(linkUsage, s.tenant, s.run, s.lane, s.seq, f.startModel)
	}
	if e := &f.ends; len(e.seq) > 0 {
		do(insertUsage, e.tenant, e.run, e.lane, e.ts, e.seq, f.reported, f.input, f.output, f.cacheRead, f.cacheWrite,
			f.cost)
	}
	if c := &f.begun; len(c.seq) > 0 {
		do(insertCalls, c.tenant, c.run, c.lane, c.day, c.ts, c.seq, c.id, c.tool)
	}
	if c := &f.late; len(c.seq) > 0 {
		do(linkCalls, c.tenant, c.run, c.lane, c.ts, c.seq, c.id, c.tool)
	}
	if c := &f.ended; len(c.seq) > 0 {
		do(insertCallEnds, c.tenant, c.run, c.lane, c.day, c.ts, c.seq, c.id, c.outcome, c.duration)
	}
}
