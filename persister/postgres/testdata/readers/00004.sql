-- What an edge of the release with tables of version 4 asked. It named no tenant to row security.

-- The list of runs, and those in two states.
select id, state, case when state = reason_of then reason else '' end as reason, last_seq, first_ts, last_ts, usage::text as usage
from agent_runs where koder_user_id = 'acme' order by first_ts desc, id desc limit 100;

select * from (
	(select id, state, last_seq, first_ts from agent_runs where koder_user_id = 'acme' and state = 'done' order by first_ts desc, id desc limit 100) union all
	(select id, state, last_seq, first_ts from agent_runs where koder_user_id = 'acme' and state = 'error' order by first_ts desc, id desc limit 100)) page
order by first_ts desc, id desc limit 100;

-- Heads, the way from a child to its root, a page of events, the frames.
select r.id, r.run_day, r.state, r.last_seq, r.last_id, r.anchors, coalesce(l.owner, ''), coalesce(l.epoch, 0)::text
from agent_runs r left join agent_run_lanes l on l.koder_user_id = r.koder_user_id and l.run_id = r.id and l.lane = ''
where r.koder_user_id = 'acme' order by r.id;

select lane, run_id from agent_run_lanes where koder_user_id = 'acme' and lane <> '' order by lane, joined_at desc, run_id desc;

select run_id, seq, coalesce(child_id, ''), line from agent_run_events where koder_user_id = 'acme' order by run_id, seq;

select run_id, seq, type, coalesce(child_id, ''), case when type = 'run.lifecycle' then line end from agent_run_events
where koder_user_id = 'acme' and type in ('run.lifecycle', 'command.message', 'message.start', 'message.end') order by run_id, seq;
