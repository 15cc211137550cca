-- +goose Up

-- Short: it holds off readers.
alter table agent_runs
    add column title text, -- what is said of the run
    add column tags text, -- as well: with a comma before and after each
    add column opening text, -- first words of its first message
    add column opening_seq bigint not null default 0, -- of that message
    add column model text, -- of the newest message that names one
    add column model_seq bigint not null default 0, -- of that message
    add column words text not null default ''; -- all of it in lower case, in which lists search

comment on column agent_runs.words is 'title, agent, model, tags and first words in lower case, up to 1,000 bytes';

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
    case when r.asked_ts is not null or r.state in ('awaiting_approval', 'paused') then coalesce(r.asked_ts, case when r.state = r.reason_of then r.state_ts end, r.last_ts) end as waits_since,
    r.title, string_to_array(trim(both ',' from r.tags), ',') as tags, r.opening, r.model
from agent_runs r
left join lateral (
    select count(*) as messages, coalesce(sum(input_tokens), 0)::numeric as input_tokens, coalesce(sum(output_tokens), 0)::numeric as output_tokens,
        coalesce(sum(cache_read_tokens), 0)::numeric as cache_read_tokens, coalesce(sum(cache_write_tokens), 0)::numeric as cache_write_tokens,
        array_agg(distinct x.model order by x.model) filter (where x.model <> '') as models
    from agent_run_usage x where x.koder_user_id = r.koder_user_id and x.run_id = r.id) u on true
where r.deleted_at is null;
