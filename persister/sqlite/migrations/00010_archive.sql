-- +goose Up

alter table agent_runs add column archive_after text; -- until then somebody is archiving the run, or has failed to; no lock

-- Runs that are to be archived. No column that moves with every event: a run that goes on costs the index nothing.
create index agent_runs_unarchived on agent_runs (koder_user_id, id)
    where state in ('done', 'error', 'aborted') and archived_at is null and expired_at is null and deleted_at is null;
