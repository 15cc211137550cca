-- +goose Up

alter table agent_runs add column session             text; -- JSON: what the session.* events of the run itself have made of it; null: none
alter table agent_runs add column session_seq         integer not null default 0; -- the newest of these events
alter table agent_runs add column session_agent       text; -- id of its agent, where it can be looked for
alter table agent_runs add column session_archived_at text; -- of session.archived
alter table agent_runs add column session_deleted_at  text; -- of session.deleted: the next pass of retention removes the run

-- Lists of sessions: those that are not archived, in both orders, and those of an agent. The list of all runs serves
-- archived ones as well. No column that moves with every event is in an index or its condition.
create index agent_runs_open on agent_runs (koder_user_id, first_ts desc, id desc)
    where session_archived_at is null and session_deleted_at is null;
create index agent_runs_agent on agent_runs (koder_user_id, session_agent, first_ts desc, id desc) where session_agent is not null;
create index agent_runs_agent_open on agent_runs (koder_user_id, session_agent, first_ts desc, id desc)
    where session_agent is not null and session_archived_at is null and session_deleted_at is null;

-- Runs whose session was deleted and which are not marked yet.
create index agent_runs_unwanted on agent_runs (run_day, koder_user_id, id) where session_deleted_at is not null and deleted_at is null;

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
    r.usage, r.archived_seq, r.expired_seq, r.session, r.session_agent, r.session_archived_at
from agent_runs r where r.deleted_at is null;
