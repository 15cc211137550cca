-- +goose Up

-- Short: it holds off readers. What takes time is in the migration that follows.
alter table agent_runs
    add column session             text,
    add column session_seq         bigint not null default 0,
    add column session_agent       text collate "C",
    add column session_archived_at timestamptz,
    add column session_deleted_at  timestamptz;

comment on column agent_runs.session is 'JSON: what the session.* events of the run itself have made of it; null: there was none. Text, for jsonb cannot hold every string';
comment on column agent_runs.session_seq is 'the newest of these events';
comment on column agent_runs.session_agent is 'id of its agent, where it can be looked for';
comment on column agent_runs.session_archived_at is 'of session.archived';
comment on column agent_runs.session_deleted_at is 'of session.deleted: the run is removed by the next pass of retention';
