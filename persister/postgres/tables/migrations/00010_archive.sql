-- +goose Up

alter table agent_runs add column archive_after timestamptz;

comment on column agent_runs.archive_after is 'until then somebody is archiving the run, or has failed to; no lock';

-- Runs that are to be archived. No column that moves with every event is in it: updates of a run that goes on
-- stay within their page (HOT).
create index agent_runs_unarchived on agent_runs (koder_user_id, id)
    where state in ('done', 'error', 'aborted') and archived_at is null and expired_at is null and deleted_at is null;
