-- +goose Up

-- Every statement of the product names the tenant. This is the second wall, for the one that does not.
-- Catalogue entries alone: each table is locked for moments. An unset setting is an error and not an empty answer:
-- programs from before this migration, which still run, must not take the tables for empty.

-- +goose StatementBegin
create procedure agent_secure(t regclass) language plpgsql as $$
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

revoke all on procedure agent_secure from public;

-- A partition is read through its parent, where the policies are. The owner copies into it directly, which row
-- security that is not forced leaves alone. To whomever else it should be granted by mistake it looks empty.
-- +goose StatementBegin
do $$
declare
    partition regclass;
begin
    for partition in select inhrelid::regclass from pg_inherits where inhparent = 'agent_run_events'::regclass loop
        execute format('alter table %s enable row level security', partition);
    end loop;
end $$;
-- +goose StatementEnd

call agent_secure('agent_runs');
call agent_secure('agent_run_lanes');
call agent_secure('agent_run_events');
call agent_secure('agent_dead_letters');
call agent_secure('agent_retention');
call agent_secure('agent_holds');
