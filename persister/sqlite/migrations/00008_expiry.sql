-- +goose Up

-- What has been marked as gone and is still to be removed, in the order in which it was marked.
create table agent_trash (
    id            integer primary key autoincrement,
    koder_user_id text    not null,
    run_id        text    not null,
    run_day       text    not null,
    after_seq     integer not null, -- rows behind it and up to through_seq are to go
    through_seq   integer not null,
    uri           text    not null, -- blob; '' for none
    why           text    not null, -- expired, cold, deleted
    since         text    not null
);

create index agent_trash_run on agent_trash (koder_user_id, run_id);

-- No column that moves with every event: a run that goes on costs these indexes nothing.
create index agent_runs_over on agent_runs (run_day, koder_user_id, id)
    where state in ('done', 'error', 'aborted') and expired_at is null and deleted_at is null;
create index agent_runs_warm on agent_runs (run_day, koder_user_id, id)
    where archived_at is not null and floor_seq < archived_seq and deleted_at is null;
create index agent_runs_expired on agent_runs (expired_at) where expired_at is not null;
create index agent_runs_deleted on agent_runs (deleted_at) where deleted_at is not null;
