-- +goose Up

-- Nothing of a tenant is in it.
create table agent_log_losses (
    stream      text collate "C" not null,
    identity    text collate "C" not null,
    first       bigint      not null,
    last        bigint      not null,
    reason      text        not null,
    found_at    timestamptz not null default now(),
    restored_at timestamptz,
    primary key (stream, identity, first)
);

comment on table agent_log_losses is 'messages of the log that were never stored and are gone; a row stays for ever';
comment on column agent_log_losses.identity is 'of the stream: one that was made anew has another';
comment on column agent_log_losses.last is '0: how many there were is not known';
comment on column agent_log_losses.reason is 'dropped: the log dropped them after what is stored; before: the same, where nothing was stored; renewed: the log was made again';
comment on column agent_log_losses.restored_at is 'of before: when the runs of all objects had been restored';

create table agent_run_losses (
    koder_user_id text collate "C" not null,
    run_id        text collate "C" not null,
    first         bigint      not null,
    last          bigint      not null,
    reason        text        not null,
    found_at      timestamptz not null default now(),
    primary key (koder_user_id, run_id, first)
);

comment on table agent_run_losses is 'events that are neither in the log nor in the archive; a row stays for ever';
comment on column agent_run_losses.reason is 'as in agent_log_losses; object: the rows had left the tables, and their object does not exist';

call agent_secure('agent_run_losses');

-- Edges that read the tables already read these too.
-- +goose StatementBegin
do $$
declare
    reader record;
begin
    for reader in select distinct r.rolname, p.polname from pg_policy p join pg_roles r on r.oid = any (p.polroles)
        where p.polrelid = 'agent_runs'::regclass and p.polname like 'agent\_reader\_%' loop
        execute format('grant select on agent_log_losses, agent_run_losses to %I', reader.rolname);
        execute format('create policy %I on agent_run_losses for select to %I
            using (koder_user_id = (select current_setting(''agentstream.tenant'')))', reader.polname, reader.rolname);
    end loop;
end $$;
-- +goose StatementEnd
