-- +goose Up

-- A feed is a run of a tenant of its own, so a role of the tenant alone sees no line: who may is granted the feed's tenant.
create view agent_v_audit with (security_invoker = true) as
select koder_user_id, seq, ts, payload->>'action' as action, payload->>'run_id' as run_id, payload->>'caller' as caller,
    payload->>'credential' as credential, payload->>'via' as via, payload->>'route' as route, payload->>'event' as event,
    (payload->>'seq')::bigint as event_seq, payload->>'reason' as reason, payload->>'detail' as detail,
    coalesce((payload->>'count')::bigint, 1) as count
from agent_run_events
where koder_user_id like '\_audit%' and run_id = 'audit' and type like 'custom.audit.%';
comment on view agent_v_audit is 'one row per line of an audit feed; see docs/audit.md';

-- +goose StatementBegin
do $$
declare
    reader record;
begin
    for reader in select distinct r.rolname from pg_policy p join pg_roles r on r.oid = any (p.polroles)
        where p.polrelid = 'agent_runs'::regclass and (p.polname like 'agent\_reader\_%' or p.polname like 'agent\_analyst\_%') loop
        execute format('grant select on agent_v_audit to %I', reader.rolname);
    end loop;
end $$;
-- +goose StatementEnd
