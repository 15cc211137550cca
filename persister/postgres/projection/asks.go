package projection

// SelectAskEvents returns a run's events of some types from a seq on. The primary key finds them. They are few, because
// packs of one run arrive nearly in order.
const SelectAskEvents = `
select seq, type, coalesce(child_id, ''), ts, line from agent_run_events where koder_user_id = $1 and run_day = $2 and run_id = $3 and seq >= $4
	and type = any($5::text[])`

// UpdateAsks stores the open questions of runs, and since when the oldest is open.
const UpdateAsks = `
update agent_runs r set asks = nullif(x.asks, ''), asked_ts = x.ts
from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) as x(t, id, asks, ts)
where r.koder_user_id = x.t and r.id = x.id`
