-- +goose Up

alter table agent_runs add column title text; -- what is said of the run
alter table agent_runs add column tags text; -- as well: with a comma before and after each
alter table agent_runs add column opening text; -- first words of its first message
alter table agent_runs add column opening_seq integer not null default 0; -- of that message
alter table agent_runs add column model text; -- of the newest message that names one
alter table agent_runs add column model_seq integer not null default 0; -- of that message
alter table agent_runs add column words text not null default ''; -- all of it in lower case, up to 1,000 bytes, in which lists search

drop view agent_v_runs;

create view agent_v_runs as
select r.koder_user_id, r.id as run_id, nullif(r.state, '') as state, iif(r.state = r.reason_of, nullif(r.reason, ''), null) as reason,
    r.first_ts as started, r.last_ts as updated, iif(r.state in ('done', 'error', 'aborted'), r.last_ts, null) as ended,
    iif(r.state in ('done', 'error', 'aborted'), (julianday(r.last_ts) - julianday(r.first_ts)) * 86400, null) as duration,
    r.last_seq as events,
    (select count(*) from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id) as messages,
    (select cast(total(input_tokens) as integer) from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id) as input_tokens,
    (select cast(total(output_tokens) as integer) from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id) as output_tokens,
    (select cast(total(cache_read_tokens) as integer) from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id) as cache_read_tokens,
    (select cast(total(cache_write_tokens) as integer) from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id) as cache_write_tokens,
    (select group_concat(model, ',') from (select distinct model from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id and model <> '' order by 1)) as models,
    (select count(*) from agent_run_lanes l where l.koder_user_id = r.koder_user_id and l.run_id = r.id and l.lane <> '') as children,
    r.usage, r.archived_seq, r.expired_seq, r.session, r.session_agent, r.session_archived_at,
    case when r.state = 'awaiting_approval' then 'approval' when r.state = 'paused' then 'resume' when r.asked_ts is not null then 'answer' end as waits_for,
    case when r.asked_ts is not null or r.state in ('awaiting_approval', 'paused') then coalesce(r.asked_ts, iif(r.state = r.reason_of, r.state_ts, null), r.last_ts) end as waits_since,
    r.title, trim(r.tags, ',') as tags, r.opening, r.model
from agent_runs r where r.deleted_at is null;
