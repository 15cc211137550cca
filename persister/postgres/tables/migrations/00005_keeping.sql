-- +goose Up

-- What is kept of a run, and where. Constants as defaults: no row is rewritten.
alter table agent_runs
    add column archived_seq   bigint not null default 0,
    add column archived_at    timestamptz,
    add column archived_bytes bigint not null default 0,
    add column floor_seq      bigint not null default 0,
    add column expired_seq    bigint not null default 0,
    add column expired_at     timestamptz,
    add column deleted_at     timestamptz;

comment on column agent_runs.archived_seq is 'the blob at replay_uri holds the events 1 to here; 0: there is no blob';
comment on column agent_runs.archived_at is 'when the blob was written; null again as soon as the run goes on';
comment on column agent_runs.archived_bytes is 'size of the blob';
comment on column agent_runs.floor_seq is 'rows up to here have left agent_run_events for good and are not written again';
comment on column agent_runs.expired_seq is 'events up to here are gone everywhere; at most floor_seq';
comment on column agent_runs.expired_at is 'when the run expired; null again as soon as it goes on';
comment on column agent_runs.deleted_at is 'the run is to be forgotten: nothing of it is given out, and what comes late is dropped';

create table agent_retention (
    koder_user_id  text collate "C" primary key,
    completed_days integer check (completed_days >= 0),
    ended_days     integer check (ended_days >= 0),
    updated_at     timestamptz not null default now()
);

comment on table agent_retention is 'days that a tenant''s runs are kept, where they are not the deployment''s; null: the deployment''s';
comment on column agent_retention.completed_days is 'for runs in state done';
comment on column agent_retention.ended_days is 'for runs in state error or aborted';

create table agent_holds (
    koder_user_id text collate "C" not null,
    run_id        text collate "C" not null,
    reason        text        not null,
    placed_at     timestamptz not null default now(),
    primary key (koder_user_id, run_id)
);

comment on table agent_holds is 'legal holds: what they name is neither expired nor deleted. run_id '''' is the whole tenant';
