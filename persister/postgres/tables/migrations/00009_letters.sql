-- +goose Up

alter table agent_dead_letters
    add column tries      integer not null default 0,
    add column tried_at   timestamptz,
    add column last_error text not null default '';

comment on column agent_dead_letters.tries is 'how often it was tried again in vain';
comment on column agent_dead_letters.tried_at is 'the last time';
comment on column agent_dead_letters.last_error is 'why that failed';

-- The list of letters, newest first.
create index agent_dead_letters_list on agent_dead_letters (buried_at, stream, position, seq, id);
