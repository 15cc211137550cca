-- +goose Up

-- Short: it holds off readers. What takes time is in the migration that follows.
alter table agent_runs
    add column asks     text,
    add column asked_ts timestamptz;

-- An end knows its start, whose tool it has: so a question about all calls reads an index and nothing else.
alter table agent_run_tool_calls
    add column if not exists start_seq bigint not null default 0,
    add column if not exists took_ms double precision;

comment on column agent_run_tool_calls.start_seq is 'of an end: the newest tool.start of the call before it; 0 while that is not stored';
comment on column agent_run_tool_calls.took_ms is 'of an end with a start: as the producer told it, else between the two';

create view agent_v_tool_times with (security_invoker = true) as
select koder_user_id, run_id, nullif(lane, '') as child_id, start_seq as seq, seq as end_seq, nullif(call_id, '') as call_id, tool,
    nullif(outcome, '') as outcome, ts as ended, took_ms as duration_ms
from agent_run_tool_calls where kind = 'end' and start_seq > 0;

comment on view agent_v_tool_times is 'one row per tool.end, with the tool and the time that it took; see docs/sql.md';

comment on column agent_runs.run_day is 'UTC day on which the run''s first pack was written; constant per run; names its partition';
comment on column agent_runs.asks is 'JSON: the questions that nobody has answered, at most 256; null: there is none. See schema.Ask';
comment on column agent_runs.asked_ts is 'time of the oldest of them';

create or replace view agent_v_runs with (security_invoker = true) as
select r.koder_user_id, r.id as run_id, nullif(r.state, '') as state,
    case when r.state = r.reason_of then nullif(r.reason, '') end as reason,
    r.first_ts as started, r.last_ts as updated,
    case when r.state in ('done', 'error', 'aborted') then r.last_ts end as ended,
    case when r.state in ('done', 'error', 'aborted') then r.last_ts - r.first_ts end as duration,
    r.last_seq as events, u.messages, u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens, u.models,
    (select count(*) from agent_run_lanes l where l.koder_user_id = r.koder_user_id and l.run_id = r.id and l.lane <> '') as children,
    r.usage, r.archived_seq, r.expired_seq, r.session, r.session_agent, r.session_archived_at,
    case when r.state = 'awaiting_approval' then 'approval' when r.state = 'paused' then 'resume' when r.asked_ts is not null then 'answer' end as waits_for,
    case when r.asked_ts is not null or r.state in ('awaiting_approval', 'paused') then coalesce(r.asked_ts, r.last_ts) end as waits_since
from agent_runs r
left join lateral (
    select count(*) as messages, coalesce(sum(input_tokens), 0)::numeric as input_tokens, coalesce(sum(output_tokens), 0)::numeric as output_tokens,
        coalesce(sum(cache_read_tokens), 0)::numeric as cache_read_tokens, coalesce(sum(cache_write_tokens), 0)::numeric as cache_write_tokens,
        array_agg(distinct x.model order by x.model) filter (where x.model <> '') as models
    from agent_run_usage x where x.koder_user_id = r.koder_user_id and x.run_id = r.id) u on true
where r.deleted_at is null;
