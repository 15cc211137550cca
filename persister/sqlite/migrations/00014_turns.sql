-- +goose Up

alter table agent_runs add column turn      text    not null default ''; -- whether the root lane works, by the newest of its turn.start, turn.end and run.lifecycle: open, held, closed; empty: there was none since this column is there
alter table agent_runs add column turn_stop text    not null default ''; -- with closed: the stop_reason of the turn.end, or the final state
alter table agent_runs add column turn_seq  integer not null default 0; -- that event. Below reason_seq: what it says is out of date
