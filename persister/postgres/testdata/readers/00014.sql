-- What an edge of the release with tables of version 14 (a61788a) asks, as the tenant that it names.

-- The list of runs, those in two states, and the lists of sessions.
select id, state, case when state = reason_of then reason else '' end as reason, last_seq, first_ts, last_ts, usage::text as usage,
	case when turn_seq >= reason_seq then turn else '' end as turn, turn_stop, null::text as session
from agent_runs where koder_user_id = 'acme' and expired_at is null and deleted_at is null order by first_ts desc, id desc limit 100;

select * from (
	(select id, state, last_seq, first_ts from agent_runs where koder_user_id = 'acme' and expired_at is null and deleted_at is null
		and state = 'done' order by first_ts desc, id desc limit 100) union all
	(select id, state, last_seq, first_ts from agent_runs where koder_user_id = 'acme' and expired_at is null and deleted_at is null
		and state = 'error' order by first_ts desc, id desc limit 100)) page
order by first_ts desc, id desc limit 100;

select id, state, last_seq, first_ts, session from agent_runs where koder_user_id = 'acme' and expired_at is null and deleted_at is null
	and session_archived_at is null and session_deleted_at is null order by first_ts, id limit 100;

-- Heads, places, the way from a child to its root, a page of events, the frames.
select r.id, r.run_day, r.state, r.last_seq, r.last_id, r.anchors, coalesce(l.owner, ''), coalesce(l.epoch, 0)::text
from agent_runs r left join agent_run_lanes l on l.koder_user_id = r.koder_user_id and l.run_id = r.id and l.lane = ''
where r.koder_user_id = 'acme' and r.deleted_at is null order by r.id;

select id, run_day, last_seq, archived_seq, coalesce(replay_uri, ''), floor_seq, expired_seq, deleted_at is not null
from agent_runs where koder_user_id = 'acme' order by id;

select l.lane, l.run_id from agent_run_lanes l where l.koder_user_id = 'acme' and l.lane <> ''
	and not exists (select from agent_runs r where r.koder_user_id = l.koder_user_id and r.id = l.run_id and r.deleted_at is not null)
order by l.lane, l.joined_at desc, l.run_id desc;

select run_id, seq, coalesce(child_id, ''), line from agent_run_events where koder_user_id = 'acme' order by run_id, seq;

select run_id, seq, type, coalesce(child_id, ''), case when type = 'run.lifecycle' then line end from agent_run_events
where koder_user_id = 'acme' and type in ('run.lifecycle', 'command.message', 'message.start', 'message.end') order by run_id, seq;

-- Its readiness.
select to_regclass('agent_dead_letters') is not null and to_regclass('agentstream_migrations') is not null;
