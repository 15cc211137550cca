-- What `agentstream migrate --search=words` makes, and --search=off removes. Nothing of the product reads it.

create table agent_run_words (
    koder_user_id text collate "C" not null,
    run_id        text collate "C" not null,
    lane          text collate "C" not null,
    seq           bigint      not null,
    ts            timestamptz not null,
    words         tsvector    not null,
    primary key (koder_user_id, run_id, lane, seq)
);

comment on table agent_run_words is 'words of the texts of messages, by the seq at which the message began. Granted to nobody: agent_search reads it';

-- The function decides whose rows are given. Row security would keep the index from being used: its operator is none
-- that may be asked before a policy.
create function agent_search(query text, most integer default 100)
    returns table (koder_user_id text, run_id text, child_id text, seq bigint, started timestamptz)
    language sql stable rows 100 security definer set search_path = pg_catalog, SCHEMA, pg_temp as $$
    with mine as materialized (
        select substring(pg_get_expr(p.polqual, p.polrelid) from '''([A-Za-z0-9_-]+)''') as tenant from pg_policy p
        where p.polrelid = 'agent_runs'::regclass and p.polname ~ '^agent_analyst_\d+$' and pg_has_role(session_user, p.polroles[1], 'usage')
            and not pg_has_role(session_user, (select relowner from pg_class where oid = 'agent_runs'::regclass), 'usage')
        union all
        select current_setting('agentstream.tenant', true)
        where pg_has_role(session_user, (select relowner from pg_class where oid = 'agent_runs'::regclass), 'usage'))
    select t.koder_user_id, t.run_id, nullif(t.lane, ''), t.seq, t.ts from agent_run_words t
    where t.words @@ websearch_to_tsquery('simple', query)
        and (t.koder_user_id in (select tenant from mine) or exists (select from mine where tenant = '*'))
    order by t.ts desc limit most $$;

comment on function agent_search is 'the newest messages whose text has the words, of the tenant of whoever asks; see docs/sql.md';

-- Longer texts are cut: a tsvector holds a megabyte.
create function agent_words_of(content text) returns tsvector language sql immutable parallel safe as
$$ select to_tsvector('simple', left(coalesce(content, ''), 200000)) $$;

create function agent_run_messages_told() returns trigger language plpgsql set search_path = pg_catalog, SCHEMA, pg_temp as $$
begin
    insert into agent_run_words (koder_user_id, run_id, lane, seq, ts, words)
    select p.koder_user_id, p.run_id, p.lane, p.seq, p.ts, agent_words_of(agent_message_text(p.koder_user_id, p.run_day, p.run_id, p.lane, p.seq, p.ended, p.ended))
    from (select distinct s.koder_user_id, s.run_id, s.lane, s.seq, s.ts, s.run_day, e.seq as ended from fresh f
        cross join lateral (select * from agent_run_messages s where s.koder_user_id = f.koder_user_id and s.run_id = f.run_id and s.lane = f.lane
            and s.kind = 'start' and s.seq <= f.seq order by s.seq desc limit 1) s
        left join lateral (select n.seq from agent_run_messages n where n.koder_user_id = f.koder_user_id and n.run_id = f.run_id and n.lane = f.lane
            and n.kind = 'start' and n.seq > s.seq order by n.seq limit 1) n on true
        cross join lateral (select e.seq from agent_run_messages e where e.koder_user_id = f.koder_user_id and e.run_id = f.run_id and e.lane = f.lane
            and e.kind = 'end' and e.seq > s.seq and (n.seq is null or e.seq < n.seq) order by e.seq limit 1) e
        where f.kind in ('start', 'end')) p
    on conflict (koder_user_id, run_id, lane, seq) do update set words = excluded.words;
    with g as materialized (select f.koder_user_id, f.run_id, f.lane, s.seq from fresh f -- the end is that of a start which comes late
        cross join lateral (select s.seq from agent_run_messages s where s.koder_user_id = f.koder_user_id and s.run_id = f.run_id and s.lane = f.lane
            and s.kind = 'start' and s.seq < f.seq order by s.seq desc limit 1) s
        where f.kind = 'start' and not exists (select from agent_run_messages e where e.koder_user_id = f.koder_user_id and e.run_id = f.run_id
            and e.lane = f.lane and e.kind = 'end' and e.seq > s.seq and e.seq < f.seq))
    delete from agent_run_words w using g where w.koder_user_id = g.koder_user_id and w.run_id = g.run_id and w.lane = g.lane and w.seq = g.seq;
    insert into agent_run_words (koder_user_id, run_id, lane, seq, ts, words)
    select koder_user_id, run_id, lane, seq, ts, agent_words_of(agent_content_text(agent_event_payload(koder_user_id, run_day, run_id, seq) -> 'content'))
    from fresh where kind = 'user'
    on conflict do nothing;
    return null;
end $$;

create function agent_run_messages_gone() returns trigger language plpgsql set search_path = pg_catalog, SCHEMA, pg_temp as $$
begin
    delete from agent_run_words w using gone g
    where w.koder_user_id = g.koder_user_id and w.run_id = g.run_id and w.lane = g.lane and w.seq = g.seq;
    return null;
end $$;

create trigger agent_run_messages_told after insert on agent_run_messages referencing new table as fresh
    for each statement execute function agent_run_messages_told();
create trigger agent_run_messages_gone after delete on agent_run_messages referencing old table as gone
    for each statement execute function agent_run_messages_gone();
