-- +goose Up

-- A program that names no tenant gets an error, as 00006 has it for tables that are new: it was an empty answer.
-- +goose StatementBegin
do $$
declare
    policy record;
begin
    for policy in select polname, polrelid::regclass as of_table from pg_policy p join pg_class c on c.oid = p.polrelid
        where (polname = 'agent_one_tenant' or polname like 'agent\_reader\_%') and pg_table_is_visible(c.oid) loop
        execute format('alter policy %I on %s using (koder_user_id = (select current_setting(''agentstream.tenant'')))', policy.polname, policy.of_table);
    end loop;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace procedure agent_secure(t regclass) language plpgsql as $$
declare
    owner text := (select quote_ident(pg_get_userbyid(relowner)) from pg_class where oid = t);
begin
    execute format('alter table %s enable row level security', t);
    execute format('alter table %s force row level security', t);
    execute format('drop policy if exists agent_one_tenant on %s', t);
    execute format('drop policy if exists agent_every_tenant on %s', t);
    execute format('create policy agent_one_tenant on %s to %s
        using (koder_user_id = (select current_setting(''agentstream.tenant'')))', t, owner);
    execute format('create policy agent_every_tenant on %s to %s
        using ((select current_setting(''agentstream.tenant'', true)) = ''*'')', t, owner);
end $$;
-- +goose StatementEnd

comment on procedure agent_secure is 'lets the owner of a table see the rows of the tenant that agentstream.tenant names, all when it is *; unset is an error; others see none';

-- Migrations only add; so programs of the release before go on beside newer tables. One that takes something away
-- replaces this function, a release after the last program that needs it.
create function agent_readable_from() returns bigint language sql immutable as 'select 14::bigint';

comment on function agent_readable_from is 'programs that were written for tables of this version or a newer one read and store right beside these';
