-- +goose Up

-- Short: it holds off readers.
alter table agent_runs add column prev_seq bigint not null default 0;

comment on column agent_runs.prev_seq is 'last_seq before the newest transaction that stored events of the run: what has a greater seq was new to it';
