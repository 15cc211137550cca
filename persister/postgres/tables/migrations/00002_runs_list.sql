-- +goose Up

-- Short: it holds off readers. What takes time is in the migrations that follow.
alter table agent_runs
    add column first_seq  bigint not null default 1,
    add column usage      jsonb  not null default '{}',
    add column reason     text   not null default '',
    add column reason_of  text   not null default '',
    add column reason_seq bigint not null default 0;

comment on column agent_runs.first_ts is 'time of the event first_seq: of the run''s first one, once it is stored';
comment on column agent_runs.usage is 'whole numbers of all message.end events, summed by name';
comment on column agent_runs.reason is 'what the newest run.lifecycle (reason_seq, state reason_of) gave as its reason';

alter table agent_run_lanes add column joined_at timestamptz not null default now();

comment on table agent_run_lanes is 'the run itself (lane '''', when it has an owner) and each child: last owner, for fencing';
comment on column agent_run_lanes.joined_at is 'when the lane''s first event was stored';
