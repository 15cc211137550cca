package projection

import (
	"context"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Tx runs statements of a transaction.
type Tx interface {
	Exec(ctx context.Context, text string, args ...any) error
	// Each calls row for each row of the result. It ends with the first error of row.
	Each(ctx context.Context, row func(scan func(...any) error) error, text string, args ...any) error
}

// Lane is one whose events are to be read again from one on, because they may repeat what it has.
type Lane struct {
	Key  schema.RunKey
	Name string // "" is the run itself
	Day  time.Time
	From schema.Seq
}

// suspicion is a frame whose id the lane has already: at the seq before it, or also after it.
type suspicion struct {
	Lane
	seq, before schema.Seq
	later       bool
	starts      bool // it is a start, and what is before it an end
}

// findMessages finds the newest message.start or message.end with the id before each, and the start that it may belong
// to. What begins and ends once is not among them.
const findMessages = `
select x.t, x.r, x.d, x.lane, x.seq, coalesce(p.seq, 0), n.later, coalesce(s.seq, p.seq, 0), x.kind = 'start' and coalesce(p.kind = 'end', false)
from unnest($1::text[], $2::text[], $3::text[], $4::date[], $5::bigint[], $6::text[], $7::text[]) as x(t, r, lane, d, seq, kind, id)
left join lateral (select m.seq, m.kind from agent_run_messages m where m.koder_user_id = x.t and m.run_id = x.r and m.lane = x.lane
	and m.message_id = x.id and m.kind in ('start', 'end') and m.seq < x.seq order by m.seq desc limit 1) p on true
left join lateral (select m.seq from agent_run_messages m where m.koder_user_id = x.t and m.run_id = x.r and m.lane = x.lane
	and m.message_id = x.id and m.kind = 'start' and m.seq < x.seq order by m.seq desc limit 1) s on true
cross join lateral (select exists (select from agent_run_messages m where m.koder_user_id = x.t and m.run_id = x.r and m.lane = x.lane
	and m.message_id = x.id and m.kind = x.kind and m.seq > x.seq) as later) n
where x.kind <> 'user' and x.id <> '' and (n.later or x.kind = 'start' and p.seq is not null or p.kind = 'end')`

// findCalls is findMessages for calls. They are read from the beginning of the message before them, which may ask for
// them.
const findCalls = `
select x.t, x.r, x.d, x.lane, x.seq, greatest(s.seq, e.seq, 0), n.later, least(greatest(s.seq, 0), coalesce(m.seq, 0)), x.kind = 'start' and coalesce(e.seq > coalesce(s.seq, 0), false)
from unnest($1::text[], $2::text[], $3::text[], $4::date[], $5::bigint[], $6::text[], $7::text[]) as x(t, r, lane, d, seq, kind, id)
left join lateral (select c.seq from agent_run_tool_calls c where c.koder_user_id = x.t and c.run_id = x.r and c.lane = x.lane
	and c.call_id = x.id and c.kind = 'start' and c.seq < x.seq order by c.seq desc limit 1) s on true
left join lateral (select c.seq from agent_run_tool_calls c where c.koder_user_id = x.t and c.run_id = x.r and c.lane = x.lane
	and c.call_id = x.id and c.kind = 'end' and c.seq < x.seq order by c.seq desc limit 1) e on true
left join lateral (select m.seq from agent_run_messages m where m.koder_user_id = x.t and m.run_id = x.r and m.lane = x.lane
	and m.kind = 'start' and m.seq < s.seq order by m.seq desc limit 1) m on true
cross join lateral (select exists (select from agent_run_tool_calls c where c.koder_user_id = x.t and c.run_id = x.r and c.lane = x.lane
	and c.call_id = x.id and c.kind = x.kind and c.seq > x.seq) as later) n
where n.later or x.kind = 'start' and (s.seq is not null or e.seq is not null) or e.seq > coalesce(s.seq, 0)`

// hasTurn reports whether a lane has begun another turn, or a person has said something, between two events.
const hasTurn = `select exists (select from agent_run_events where koder_user_id = $1 and run_day = $2 and run_id = $3 and seq > $4 and seq < $5
	and coalesce(child_id, '') = $6 and type in ('turn.start', 'command.message'))`

// Confirm returns their lanes, each once: what begins in another turn than the end before it repeats nothing.
func (found *Suspects) Confirm(ctx context.Context, tx Tx) (lanes []Lane, err error) {
	if err := found.findKnown(ctx, tx); err != nil {
		return nil, err
	}
	for i := range found.all {
		s := &found.all[i]
		isNew := false
		if s.starts && !s.later {
			err := tx.Each(ctx, func(scan func(...any) error) error { return scan(&isNew) }, hasTurn, s.Key.Tenant,
				s.Day, s.Key.Run,
				int64(s.before), int64(s.seq), s.Name)
			if err != nil {
				return nil, err
			}
		}
		if isNew {
			continue
		}
		if back := persister.LookBack(s.seq); s.later || back == 0 {
			s.From = back
		}
		lanes = Include(lanes, s.Lane)
	}
	return lanes, nil
}

// Include adds a lane, or lets the one that is there begin where the earlier of both does.
func Include(lanes []Lane, one Lane) []Lane {
	for i := range lanes {
		if l := &lanes[i]; l.Key == one.Key && l.Name == one.Name {
			l.From = min(l.From, one.From)
			return lanes
		}
	}
	return append(lanes, one)
}

const selectLane = `select seq, ts, type, line from agent_run_events where koder_user_id = $1 and run_day = $2 and run_id = $3
	and (seq >= $4 or seq = (select max(seq) from agent_run_events where koder_user_id = $1 and run_day = $2 and run_id = $3 and seq < $4
		and type in ('run.lifecycle', 'command.message', 'message.start', 'message.end') and type = 'run.lifecycle' and coalesce(child_id, '') = $5))
	and (coalesce(child_id, '') = $5 or type = 'run.lifecycle' and child_id is null) order by seq`

const selectCounted = `select seq from agent_run_usage where koder_user_id = $1 and run_id = $2 and seq >= $3 and coalesce(child_id, '') = $4`

const dropMessages = `delete from agent_run_messages where koder_user_id = $1 and run_id = $2 and lane = $3 and seq = any($4::bigint[])`

const dropCalls = `delete from agent_run_tool_calls where koder_user_id = $1 and run_id = $2 and lane = $3 and seq = any($4::bigint[])`

const dropUsage = `delete from agent_run_usage where koder_user_id = $1 and run_id = $2 and seq = any($3::bigint[])`

const updateRunUsage = `update agent_runs set usage = $3::jsonb where koder_user_id = $1 and id = $2`

// Reread reads a lane again, removes the rows of what repeats, and adds those of what does not. The run is locked, and
// its usage counts the rows that are there.
func (l *Lane) Reread(ctx context.Context, tx Tx) error {
	var events []persister.LaneEvent
	err := tx.Each(ctx, func(scan func(...any) error) error {
		var seq schema.Seq
		var ts time.Time
		var typ string
		var line []byte
		err := scan(&seq, &ts, &typ, &line)
		if e, ok := persister.LaneEventOf(seq, ts, typ, line); ok {
			events = append(events, e)
		}
		return err
	}, selectLane, l.Key.Tenant, l.Day, l.Key.Run, int64(l.From), l.Name)
	if err != nil {
		return err
	}
	repeats := persister.Repeats(events)
	if err := l.correctUsage(ctx, tx, events, repeats); err != nil {
		return err
	}
	var f Frames
	var all, drop []int64
	for i := range events {
		e := &events[i]
		if !IsFrame(e.Type) {
			continue
		}
		all = append(all, int64(e.Seq))
		if repeats[e.Seq] {
			drop = append(drop, int64(e.Seq))
		} else {
			f.Add(&Place{Key: l.Key, Lane: l.Name, Day: l.Day, TS: e.TS, Seq: e.Seq}, e.Type, e.Payload())
		}
	}
	run := func(text string, args ...any) {
		if err == nil {
			err = tx.Exec(ctx, text, args...)
		}
	}
	if len(all) > 0 { // the words of messages, where they are kept, are made of their rows
		run(dropMessages, l.Key.Tenant, l.Key.Run, l.Name, all)
	}
	if len(drop) > 0 {
		run(dropCalls, l.Key.Tenant, l.Key.Run, l.Name, drop)
		run(dropUsage, l.Key.Tenant, l.Key.Run, drop)
	}
	f.Each(run)
	return err
}

// correctUsage lets the usage of the run count what does not repeat. It runs before the rows change.
func (l *Lane) correctUsage(ctx context.Context, tx Tx, events []persister.LaneEvent,
	repeats map[schema.Seq]bool) error {
	counted := make(map[schema.Seq]bool)
	err := tx.Each(ctx, func(scan func(...any) error) error {
		var seq schema.Seq
		err := scan(&seq)
		counted[seq] = true
		return err
	}, selectCounted, l.Key.Tenant, l.Key.Run, int64(l.From), l.Name)
	if err != nil {
		return err
	}
	var was string
	err = tx.Each(ctx, func(scan func(...any) error) error { return scan(&was) },
		`select usage::text from agent_runs where koder_user_id = $1 and id = $2`, l.Key.Tenant, l.Key.Run)
	if err != nil {
		return err
	}
	usage := schema.ParseUsage(was)
	if now := persister.CorrectUsage(usage, events, repeats, counted).String(); now != usage.String() {
		return tx.Exec(ctx, updateRunUsage, l.Key.Tenant, l.Key.Run, now)
	}
	return nil
}
