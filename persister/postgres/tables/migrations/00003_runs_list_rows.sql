-- +goose Up

-- Readers go on, persisters wait: what they stored meanwhile would be missing below.
lock table agent_runs, agent_run_lanes in share row exclusive mode;

update agent_runs r set first_ts = e.ts from agent_run_events e
    where e.koder_user_id = r.koder_user_id and e.run_day = r.run_day and e.run_id = r.id and e.seq = 1 and e.ts <> r.first_ts;

-- Children without an owner had no row so far.
insert into agent_run_lanes (koder_user_id, run_id, lane, owner, epoch)
    select distinct koder_user_id, run_id, child_id, '', 0 from agent_run_events where child_id is not null
    on conflict do nothing;

update agent_run_lanes l set joined_at = r.first_ts from agent_runs r
    where r.koder_user_id = l.koder_user_id and r.id = l.run_id;

-- The list of a tenant's runs, newest first, of all states and of some.
create index agent_runs_list on agent_runs (koder_user_id, first_ts desc, id desc);
create index agent_runs_list_of_state on agent_runs (koder_user_id, state, first_ts desc, id desc);

-- The root run of a child.
create index agent_run_lanes_child on agent_run_lanes (koder_user_id, lane, joined_at desc, run_id desc) where lane <> '';
