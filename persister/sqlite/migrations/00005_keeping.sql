-- +goose Up

alter table agent_runs add column archived_seq   integer not null default 0; -- the blob at replay_uri holds the events 1 to here
alter table agent_runs add column archived_at    text;                       -- null again as soon as the run goes on
alter table agent_runs add column archived_bytes integer not null default 0;
alter table agent_runs add column floor_seq      integer not null default 0; -- rows up to here have left agent_run_events for good
alter table agent_runs add column expired_seq    integer not null default 0; -- events up to here are gone everywhere; at most floor_seq
alter table agent_runs add column expired_at     text;                       -- null again as soon as the run goes on
alter table agent_runs add column deleted_at     text;                       -- the run is to be forgotten; what comes late is dropped

create table agent_retention (
    koder_user_id  text primary key, -- days that a tenant's runs are kept, where they are not the deployment's
    completed_days integer check (completed_days >= 0), -- for runs in state done; null: the deployment's
    ended_days     integer check (ended_days >= 0),     -- for runs in state error or aborted
    updated_at     text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) without rowid;

create table agent_holds (
    koder_user_id text not null, -- legal holds: what they name is neither expired nor deleted
    run_id        text not null, -- '': the whole tenant
    reason        text not null,
    placed_at     text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    primary key (koder_user_id, run_id)
) without rowid;
