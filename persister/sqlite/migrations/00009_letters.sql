-- +goose Up

alter table agent_dead_letters add column tries      integer not null default 0; -- how often it was tried again in vain
alter table agent_dead_letters add column tried_at   text;                       -- the last time
alter table agent_dead_letters add column last_error text    not null default ''; -- why that failed

-- The list of letters, newest first.
create index agent_dead_letters_list on agent_dead_letters (buried_at, stream, position, seq, id);
