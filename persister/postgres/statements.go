package postgres

// upsertRuns neither changes nor returns a deleted run ($17 is its floor). RETURNING sees the row as it is now, and the
// row as it was is known only to SET: prev_seq is what last_seq was, also after a wait for another transaction. A new
// run has its names at once; those of others are merged by UpdateNaming.
const upsertRuns = `
insert into agent_runs as r (koder_user_id, id, run_day, state, last_seq, last_id, first_ts, last_ts,
	first_seq, reason, reason_of, reason_seq, turn, turn_stop, turn_seq, state_ts,
	opening, opening_seq, model, model_seq, words)
select * from unnest($1::text[], $2::text[], $3::date[], $4::text[], $5::bigint[], $6::text[],
	$7::timestamptz[], $8::timestamptz[], $9::bigint[], $10::text[], $11::text[], $12::bigint[],
	$13::text[], $14::text[], $15::bigint[], $16::timestamptz[],
	$18::text[], $19::bigint[], $20::text[], $21::bigint[], $22::text[])
on conflict (koder_user_id, id) do update set
	state      = case when excluded.last_seq > r.last_seq then excluded.state   else r.state   end,
	last_id    = case when excluded.last_seq > r.last_seq then excluded.last_id else r.last_id end,
	last_ts    = case when excluded.last_seq > r.last_seq then excluded.last_ts else r.last_ts end,
	last_seq   = greatest(r.last_seq, excluded.last_seq),
	prev_seq   = r.last_seq,
	first_ts   = case when excluded.first_seq < r.first_seq then excluded.first_ts else r.first_ts end,
	first_seq  = least(r.first_seq, excluded.first_seq),
	reason     = case when excluded.reason_seq > r.reason_seq then excluded.reason    else r.reason    end,
	reason_of  = case when excluded.reason_seq > r.reason_seq then excluded.reason_of else r.reason_of end,
	state_ts   = case when excluded.reason_seq <= r.reason_seq then r.state_ts
		when excluded.reason_of = r.reason_of then coalesce(r.state_ts, excluded.state_ts) else excluded.state_ts end,
	reason_seq = greatest(r.reason_seq, excluded.reason_seq),
	turn       = case when excluded.turn_seq > r.turn_seq then excluded.turn      else r.turn      end,
	turn_stop  = case when excluded.turn_seq > r.turn_seq then excluded.turn_stop else r.turn_stop end,
	turn_seq   = greatest(r.turn_seq, excluded.turn_seq),
	archived_at = case when excluded.last_seq > r.last_seq then null else r.archived_at end,
	expired_at  = case when excluded.last_seq > r.last_seq then null else r.expired_at  end,
	updated_at = now()
where r.floor_seq < $17
returning koder_user_id, id, run_day, usage::text, floor_seq, coalesce(asks, ''), prev_seq, opening_seq, coalesce(model, ''), model_seq`

// enterStates corrects upsertRuns for runs that have left their state and come back to it within the batch.
const enterStates = `
update agent_runs r set state_ts = x.ts from unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[]) as x(t, id, seq, ts)
where r.koder_user_id = x.t and r.id = x.id and r.reason_seq = x.seq`

// upsertLanes selects the lanes that change, because ON CONFLICT locks, and so writes, also rows that do not change.
const upsertLanes = `
insert into agent_run_lanes as l (koder_user_id, run_id, lane, owner, epoch)
select t, r, lane, owner, epoch::numeric from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
	as x(t, r, lane, owner, epoch)
where epoch::numeric > coalesce((select h.epoch from agent_run_lanes h
	where h.koder_user_id = x.t and h.run_id = x.r and h.lane = x.lane), -1)
on conflict (koder_user_id, run_id, lane) do update set owner = excluded.owner, epoch = excluded.epoch
	where excluded.epoch > l.epoch`

const updateUsage = `
update agent_runs r set usage = x.usage::jsonb from unnest($1::text[], $2::text[], $3::text[]) as x(t, id, usage)
where r.koder_user_id = x.t and r.id = x.id`

const insertRows = `
insert into agent_run_events (koder_user_id, run_day, run_id, seq, id, child_id, type, ts, line, payload)
select t, d, r, seq, id, nullif(child, ''), typ, ts, line, payload::jsonb
from unnest($1::text[], $2::date[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[],
	$8::timestamptz[], $9::text[], $10::text[]) as x(t, d, r, seq, id, child, typ, ts, line, payload)
on conflict do nothing`

// insertReturning is insertRows that returns the number of rows it stored, and the keys of frames and session events
// among them.
const insertReturning = `with stored as (` + insertRows + `
	returning koder_user_id, run_id, seq, type)
select '', '', 0::bigint, count(*) from stored
union all
select koder_user_id, run_id, seq, 0 from stored
	where type in ('message.start', 'message.end', 'command.message', 'tool.start', 'tool.end',
		'session.created', 'session.updated', 'session.archived', 'session.deleted')`

// findConflicts returns the indexes of rows that are stored with another line. It is a statement of its own because
// the stored row may be of a transaction for which insertRows has waited: a statement sees what was committed before
// it began.
const findConflicts = `
select x.i from unnest($1::text[], $2::date[], $3::text[], $4::bigint[], $5::text[])
	with ordinality as x(t, d, r, seq, line, i)
join agent_run_events e on e.koder_user_id = x.t and e.run_day = x.d and e.run_id = x.r and e.seq = x.seq
where e.line <> x.line
order by x.i`
