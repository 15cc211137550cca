-- +goose Up

-- Short: it holds off readers, and writes no row.
alter table agent_runs
    add column turn      text   not null default '',
    add column turn_stop text   not null default '',
    add column turn_seq  bigint not null default 0;

comment on column agent_runs.turn is 'whether the root lane works, by the newest of its turn.start, turn.end and run.lifecycle: open, held, closed; empty: there was none since this column is there';
comment on column agent_runs.turn_stop is 'with closed: the stop_reason of the turn.end, or the final state';
comment on column agent_runs.turn_seq is 'that event. Below reason_seq: what it says is out of date';
