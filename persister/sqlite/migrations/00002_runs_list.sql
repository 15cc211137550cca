-- +goose Up

alter table agent_runs add column first_seq  integer not null default 1; -- first_ts is its time
alter table agent_runs add column usage      text    not null default '{}'; -- whole numbers of all message.end events, summed by name
alter table agent_runs add column reason     text    not null default ''; -- what the newest run.lifecycle gave
alter table agent_runs add column reason_of  text    not null default ''; -- its state
alter table agent_runs add column reason_seq integer not null default 0; -- its seq

alter table agent_run_lanes add column joined_at text not null default ''; -- when the lane's first event was stored

-- Children without an owner had no row so far.
insert into agent_run_lanes (koder_user_id, run_id, lane, owner, epoch)
    select distinct koder_user_id, run_id, child_id, '', '00000000000000000000' from agent_run_events where child_id is not null
    on conflict do nothing;

-- The list of a tenant's runs, newest first, of all states and of some.
create index agent_runs_list on agent_runs (koder_user_id, first_ts desc, id desc);
create index agent_runs_list_of_state on agent_runs (koder_user_id, state, first_ts desc, id desc);

-- The root run of a child.
create index agent_run_lanes_child on agent_run_lanes (koder_user_id, lane, joined_at desc, run_id desc) where lane <> '';
