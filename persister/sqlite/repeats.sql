-- Events that begin or end once more what their run has: starts and ends of messages and calls that come twice. The views
-- and agent_runs.usage do not count them.
create table agent_run_repeats (
    koder_user_id text    not null,
    run_id        text    not null,
    seq           integer not null,
    primary key (koder_user_id, run_id, seq)
) without rowid;

-- Of a message or a call the starts and the ends, by their id. The last condition, which holds for all, keeps it from queries
-- that do not name it: the views have better ones.
create index agent_run_events_named on agent_run_events (koder_user_id, run_id, type,
    iif(json_valid(line), json_extract(line, iif(type = 'message.start' or type = 'message.end', '$.payload.message_id', '$.payload.call_id')), null), seq)
    where (type = 'message.start' or type = 'message.end' or type = 'tool.start' or type = 'tool.end') and seq > 0;

drop view agent_v_usage;
drop view agent_v_messages;
drop view agent_v_tool_calls;

create view agent_v_usage as
select koder_user_id, run_id, child_id, seq, day, model, reported,
    max(coalesce(input, 0) - coalesce(within, 0), 0) as input_tokens, coalesce(output, 0) + coalesce(thoughts, 0) as output_tokens,
    coalesce(cache_read, within, 0) as cache_read_tokens, coalesce(cache_write, 0) as cache_write_tokens, iif(cost >= 0, cost, null) as cost
from (
    select e.koder_user_id, e.run_id, e.child_id, e.seq, coalesce(date(e.ts), '') as day,
        (select case when json_valid(s.line) and json_type(s.line, '$.payload.model') = 'text' then substr(json_extract(s.line, '$.payload.model'), 1, 200) end
            from agent_run_events s where s.koder_user_id = e.koder_user_id and s.run_id = e.run_id and s.seq < e.seq and s.child_id is e.child_id
                and not exists (select 1 from agent_run_repeats x where x.koder_user_id = s.koder_user_id and x.run_id = s.run_id and x.seq = s.seq)
                and s.type = 'message.start' and s.type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
            order by s.seq desc limit 1) as model,
        json_type(l, '$.usage') is 'object' as reported,
        coalesce(iif(json_type(l, '$.usage.input_tokens') = 'integer', json_extract(l, '$.usage.input_tokens'), null),
            iif(json_type(l, '$.usage.prompt_tokens') = 'integer', json_extract(l, '$.usage.prompt_tokens'), null),
            iif(json_type(l, '$.usage.promptTokenCount') = 'integer', json_extract(l, '$.usage.promptTokenCount'), null)) as input,
        coalesce(iif(json_type(l, '$.usage.output_tokens') = 'integer', json_extract(l, '$.usage.output_tokens'), null),
            iif(json_type(l, '$.usage.completion_tokens') = 'integer', json_extract(l, '$.usage.completion_tokens'), null),
            iif(json_type(l, '$.usage.candidatesTokenCount') = 'integer', json_extract(l, '$.usage.candidatesTokenCount'), null)) as output,
        iif(json_type(l, '$.usage.thoughtsTokenCount') = 'integer', json_extract(l, '$.usage.thoughtsTokenCount'), null) as thoughts,
        coalesce(iif(json_type(l, '$.usage.input_tokens_details.cached_tokens') = 'integer', json_extract(l, '$.usage.input_tokens_details.cached_tokens'), null),
            iif(json_type(l, '$.usage.prompt_tokens_details.cached_tokens') = 'integer', json_extract(l, '$.usage.prompt_tokens_details.cached_tokens'), null),
            iif(json_type(l, '$.usage.cachedContentTokenCount') = 'integer', json_extract(l, '$.usage.cachedContentTokenCount'), null)) as within,
        iif(json_type(l, '$.usage.cache_read_input_tokens') = 'integer', json_extract(l, '$.usage.cache_read_input_tokens'), null) as cache_read,
        iif(json_type(l, '$.usage.cache_creation_input_tokens') = 'integer', json_extract(l, '$.usage.cache_creation_input_tokens'), null) as cache_write,
        coalesce(iif(json_type(l, '$.usage.cost') in ('integer', 'real'), json_extract(l, '$.usage.cost'), null),
            iif(json_type(l, '$.usage.cost_usd') in ('integer', 'real'), json_extract(l, '$.usage.cost_usd'), null),
            iif(json_type(l, '$.usage.total_cost_usd') in ('integer', 'real'), json_extract(l, '$.usage.total_cost_usd'), null)) as cost
    from (select *, iif(json_valid(line), json_extract(line, '$.payload'), '{}') as l from agent_run_events
        where not exists (select 1 from agent_run_repeats x where x.koder_user_id = agent_run_events.koder_user_id and x.run_id = agent_run_events.run_id and x.seq = agent_run_events.seq)
            and type = 'message.end' and type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
            and json_type(iif(json_valid(line), line, '{}'), '$.payload') = 'object') e);

-- Text of deltas stands for a message that has no end with content.
create view agent_v_messages as
select m.koder_user_id, m.run_id, m.child_id, m.seq, m.end_seq, json_extract(m.p, '$.message_id') as message_id,
    iif(m.type = 'command.message', 'user', json_extract(m.p, '$.role')) as role, json_extract(m.p, '$.model') as model, m.ts as started,
    iif(m.type = 'command.message', m.ts, m.end_ts) as ended,
    case when json_type(m.c) = 'text' then json_extract(m.c, '$')
        when json_type(m.c) = 'array' then (select coalesce(group_concat(iif(json_extract(b.value, '$.type') = 'text', json_extract(b.value, '$.text'), ''), ''), '')
            from json_each(m.c) b where b.type = 'object')
        when m.type = 'message.start' then (select coalesce(group_concat(t, ''), '') from (
            select json_extract(iif(json_valid(d.line), d.line, '{}'), '$.payload.text') as t from agent_run_events d
            where d.koder_user_id = m.koder_user_id and d.run_id = m.run_id and d.seq > m.seq and d.seq < coalesce(m.end_seq, 9223372036854775807)
                and d.type = 'text.delta' and d.child_id is m.child_id order by d.seq limit 20000)) end as text,
    json_extract(m.q, '$.stop_reason') as stop_reason, json_extract(m.q, '$.error') as error, json_extract(m.q, '$.usage') as usage
from (
    select x.*, iif(x.type = 'command.message', json_quote(json_extract(x.p, '$.content')), json_quote(json_extract(x.q, '$.content'))) as c
    from (
        select s.koder_user_id, s.run_id, s.child_id, s.seq, s.type, s.ts, e.seq as end_seq, e.ts as end_ts,
            iif(json_type(iif(json_valid(s.line), s.line, '{}'), '$.payload') = 'object', json_extract(s.line, '$.payload'), '{}') as p,
            iif(e.type = 'message.end' and json_type(iif(json_valid(e.line), e.line, '{}'), '$.payload') = 'object', json_extract(e.line, '$.payload'), '{}') as q
        from agent_run_events s
        join agent_runs r on r.koder_user_id = s.koder_user_id and r.id = s.run_id and r.deleted_at is null
        left join agent_run_events e on s.type = 'message.start' and e.koder_user_id = s.koder_user_id and e.run_id = s.run_id and e.seq = (
            select f.seq from agent_run_events f where f.koder_user_id = s.koder_user_id and f.run_id = s.run_id and f.seq > s.seq and f.child_id is s.child_id
                and not exists (select 1 from agent_run_repeats x where x.koder_user_id = f.koder_user_id and x.run_id = f.run_id and x.seq = f.seq)
                and f.type in ('message.start', 'message.end') and f.type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
            order by f.seq limit 1)
        where not exists (select 1 from agent_run_repeats x where x.koder_user_id = s.koder_user_id and x.run_id = s.run_id and x.seq = s.seq)
            and s.type in ('message.start', 'command.message') and s.type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')) x) m;

create view agent_v_tool_calls as
select t.koder_user_id, t.run_id, t.child_id, t.seq, e.seq as end_seq, t.call_id, json_extract(t.p, '$.tool') as tool, json_extract(t.p, '$.input') as input,
    json_extract(t.p, '$.skill_id') as skill_id,
    case json_type(iif(json_valid(e.line), e.line, '{}'), '$.payload.ok') when 'true' then 'ok' when 'false' then 'failed' end as outcome,
    json_extract(iif(json_valid(e.line), e.line, '{}'), '$.payload.error') as error,
    json_extract(iif(json_valid(e.line), e.line, '{}'), '$.payload.output') as output, t.ts as started, e.ts as ended,
    coalesce(iif(json_type(iif(json_valid(e.line), e.line, '{}'), '$.payload.duration_ms') in ('integer', 'real'), json_extract(e.line, '$.payload.duration_ms'), null),
        (julianday(e.ts) - julianday(t.ts)) * 86400000) as duration_ms
from (
    select s.koder_user_id, s.run_id, s.child_id, s.seq, s.ts, json_extract(s.p, '$.call_id') as call_id, s.p
    from (select *, iif(json_type(iif(json_valid(line), line, '{}'), '$.payload') = 'object', json_extract(line, '$.payload'), '{}') as p
        from agent_run_events where not exists (select 1 from agent_run_repeats x where x.koder_user_id = agent_run_events.koder_user_id and x.run_id = agent_run_events.run_id and x.seq = agent_run_events.seq)
            and type = 'tool.start' and type in ('tool.start', 'tool.end')) s
    join agent_runs r on r.koder_user_id = s.koder_user_id and r.id = s.run_id and r.deleted_at is null) t
left join agent_run_events e on e.koder_user_id = t.koder_user_id and e.run_id = t.run_id and e.seq = (
    select f.seq from agent_run_events f where f.koder_user_id = t.koder_user_id and f.run_id = t.run_id and f.seq > t.seq and f.child_id is t.child_id
        and not exists (select 1 from agent_run_repeats x where x.koder_user_id = f.koder_user_id and x.run_id = f.run_id and x.seq = f.seq)
        and f.type = 'tool.end' and f.type in ('tool.start', 'tool.end') and json_extract(iif(json_valid(f.line), f.line, '{}'), '$.payload.call_id') = t.call_id
    order by f.seq limit 1);
