-- +goose Up

-- Readers go on while the indexes are built, persisters wait. Lists of sessions: those that are not archived, in both orders, and those of an agent. The list of all runs serves
-- archived ones as well. No column that moves with every event is in an index or its condition.
create index agent_runs_open on agent_runs (koder_user_id, first_ts desc, id desc)
    where session_archived_at is null and session_deleted_at is null;
create index agent_runs_agent on agent_runs (koder_user_id, session_agent, first_ts desc, id desc) where session_agent is not null;
create index agent_runs_agent_open on agent_runs (koder_user_id, session_agent, first_ts desc, id desc)
    where session_agent is not null and session_archived_at is null and session_deleted_at is null;

-- Runs whose session was deleted and which are not marked yet.
create index agent_runs_unwanted on agent_runs (run_day, koder_user_id, id) where session_deleted_at is not null and deleted_at is null;

create or replace view agent_v_runs with (security_invoker = true) as
select r.koder_user_id, r.id as run_id, nullif(r.state, '') as state,
    case when r.state = r.reason_of then nullif(r.reason, '') end as reason,
    r.first_ts as started, r.last_ts as updated,
    case when r.state in ('done', 'error', 'aborted') then r.last_ts end as ended,
    case when r.state in ('done', 'error', 'aborted') then r.last_ts - r.first_ts end as duration,
    r.last_seq as events, u.messages, u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens, u.models,
    (select count(*) from agent_run_lanes l where l.koder_user_id = r.koder_user_id and l.run_id = r.id and l.lane <> '') as children,
    r.usage, r.archived_seq, r.expired_seq, r.session, r.session_agent, r.session_archived_at
from agent_runs r
left join lateral (
    select count(*) as messages, coalesce(sum(input_tokens), 0)::numeric as input_tokens, coalesce(sum(output_tokens), 0)::numeric as output_tokens,
        coalesce(sum(cache_read_tokens), 0)::numeric as cache_read_tokens, coalesce(sum(cache_write_tokens), 0)::numeric as cache_write_tokens,
        array_agg(distinct x.model order by x.model) filter (where x.model <> '') as models
    from agent_run_usage x where x.koder_user_id = r.koder_user_id and x.run_id = r.id) u on true
where r.deleted_at is null;
