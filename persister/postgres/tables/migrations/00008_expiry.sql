-- +goose Up

create table agent_trash (
    id            bigint generated always as identity primary key,
    koder_user_id text collate "C" not null,
    run_id        text collate "C" not null,
    run_day       date   not null,
    after_seq     bigint not null,
    through_seq   bigint not null,
    uri           text   not null,
    why           text   not null,
    since         timestamptz not null
);

call agent_secure('agent_trash');

create index agent_trash_run on agent_trash (koder_user_id, run_id);

comment on table agent_trash is 'what has been marked as gone and is still to be removed, in the order in which it was marked';
comment on column agent_trash.after_seq is 'rows behind it and up to through_seq are to go';
comment on column agent_trash.uri is 'blob that is to go; empty for none';
comment on column agent_trash.why is 'expired, cold (the blob has it) or deleted';

-- No column that moves with every event is in an index or its condition: updates of a run that goes on stay
-- within their page (HOT). Readers go on while the indexes are built, persisters wait.
create index agent_runs_over on agent_runs (run_day, koder_user_id, id)
    where state in ('done', 'error', 'aborted') and expired_at is null and deleted_at is null;
create index agent_runs_warm on agent_runs (run_day, koder_user_id, id)
    where archived_at is not null and floor_seq < archived_seq and deleted_at is null;
create index agent_runs_expired on agent_runs (expired_at) where expired_at is not null;
create index agent_runs_deleted on agent_runs (deleted_at) where deleted_at is not null;

-- Whether a partition holds rows of any run that is kept.
create index agent_runs_day on agent_runs (run_day);
