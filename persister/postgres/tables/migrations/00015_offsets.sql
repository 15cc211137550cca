-- +goose Up

-- Nothing of a tenant is in it.
create table agent_log_offsets (
    stream     text collate "C" primary key,
    identity   text collate "C" not null,
    generation bigint      not null,
    position   bigint      not null,
    stored_at  bigint      not null,
    owner      text        not null,
    moved_at   timestamptz not null default now()
);

comment on table agent_log_offsets is 'how far each stream of the log is stored; moved in the transaction that stores the rows';
comment on column agent_log_offsets.identity is 'of the stream: one that was made anew has another';
comment on column agent_log_offsets.generation is 'how often the log came back shorter than what is stored of it, or as another one';
comment on column agent_log_offsets.position is 'the messages of the stream up to here are stored';
comment on column agent_log_offsets.stored_at is 'when the log stored the message at position: nanoseconds since 1970, by the log''s clock; 0: unknown';
comment on column agent_log_offsets.owner is 'the persister that moved it last';
comment on column agent_log_offsets.moved_at is 'when that was';

-- Edges that read the tables already read this one too.
-- +goose StatementBegin
do $$
declare
    reader name;
begin
    for reader in select distinct r.rolname from pg_policy p join pg_roles r on r.oid = any (p.polroles)
        where p.polrelid = 'agent_runs'::regclass and p.polname like 'agent\_reader\_%' loop
        execute format('grant select on agent_log_offsets to %I', reader);
    end loop;
end $$;
-- +goose StatementEnd
