-- +goose Up

-- The views of docs/sql.md, as far as SQLite goes: they read the lines when they are asked. Nothing in them fails,
-- whatever a producer wrote. Numbers are whole and not negative; sums stop at the greatest integer.

-- What models cost, in prices per million tokens. * in the name stands for anything. Of several that fit, the
-- longest name counts, then the newest that is valid.
create table agent_model_prices (
    model       text not null check (model <> ''),
    valid_from  text not null default '2000-01-01',
    input       real not null check (input >= 0),
    output      real not null check (output >= 0),
    cache_read  real not null default 0 check (cache_read >= 0),
    cache_write real not null default 0 check (cache_write >= 0),
    primary key (model, valid_from)
) without rowid;

create index agent_run_events_tools on agent_run_events (koder_user_id, run_id, seq) where type in ('tool.start', 'tool.end');

-- One row per message.end. Tokens from a cache are part of the input at some providers: here they are beside it.
create view agent_v_usage as
select koder_user_id, run_id, child_id, seq, day, model, reported,
    max(coalesce(input, 0) - coalesce(within, 0), 0) as input_tokens, coalesce(output, 0) + coalesce(thoughts, 0) as output_tokens,
    coalesce(cache_read, within, 0) as cache_read_tokens, coalesce(cache_write, 0) as cache_write_tokens, iif(cost >= 0, cost, null) as cost
from (
    select e.koder_user_id, e.run_id, e.child_id, e.seq, coalesce(date(e.ts), '') as day,
        (select case when json_valid(s.line) and json_type(s.line, '$.payload.model') = 'text' then substr(json_extract(s.line, '$.payload.model'), 1, 200) end
            from agent_run_events s where s.koder_user_id = e.koder_user_id and s.run_id = e.run_id and s.seq < e.seq and s.child_id is e.child_id
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
        where type = 'message.end' and type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
            and json_type(iif(json_valid(line), line, '{}'), '$.payload') = 'object') e);

create view agent_v_usage_daily as
select g.koder_user_id, g.day, nullif(g.model, '') as model, g.messages, g.calls, g.input_tokens, g.output_tokens, g.cache_read_tokens,
    g.cache_write_tokens, case when g.untold = 0 then round(g.told, 6) else (
        select round(coalesce(g.told, 0) + (g.untold_input * p.input + g.untold_output * p.output + g.untold_read * p.cache_read
            + g.untold_write * p.cache_write) / 1000000, 6)
        from agent_model_prices p where p.valid_from <= g.day
            and g.model like replace(replace(replace(replace(p.model, '\', '\\'), '_', '\_'), '%', '\%'), '*', '%') escape '\'
        order by length(p.model) desc, p.valid_from desc limit 1) end as cost
from (
    select koder_user_id, day, coalesce(model, '') as model, count(*) as messages, count(*) filter (where reported) as calls,
        cast(total(input_tokens) as integer) as input_tokens, cast(total(output_tokens) as integer) as output_tokens,
        cast(total(cache_read_tokens) as integer) as cache_read_tokens, cast(total(cache_write_tokens) as integer) as cache_write_tokens,
        sum(cast(cost as real)) as told, count(*) filter (where reported and cost is null) as untold,
        total(input_tokens) filter (where cost is null) as untold_input, total(output_tokens) filter (where cost is null) as untold_output,
        total(cache_read_tokens) filter (where cost is null) as untold_read, total(cache_write_tokens) filter (where cost is null) as untold_write
    from agent_v_usage group by koder_user_id, day, coalesce(model, '')) g;

create view agent_v_runs as
select r.koder_user_id, r.id as run_id, nullif(r.state, '') as state, iif(r.state = r.reason_of, nullif(r.reason, ''), null) as reason,
    r.first_ts as started, r.last_ts as updated, iif(r.state in ('done', 'error', 'aborted'), r.last_ts, null) as ended,
    iif(r.state in ('done', 'error', 'aborted'), (julianday(r.last_ts) - julianday(r.first_ts)) * 86400, null) as duration,
    r.last_seq as events,
    (select count(*) from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id) as messages,
    (select cast(total(input_tokens) as integer) from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id) as input_tokens,
    (select cast(total(output_tokens) as integer) from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id) as output_tokens,
    (select cast(total(cache_read_tokens) as integer) from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id) as cache_read_tokens,
    (select cast(total(cache_write_tokens) as integer) from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id) as cache_write_tokens,
    (select group_concat(model, ',') from (select distinct model from agent_v_usage u where u.koder_user_id = r.koder_user_id and u.run_id = r.id and model <> '' order by 1)) as models,
    (select count(*) from agent_run_lanes l where l.koder_user_id = r.koder_user_id and l.run_id = r.id and l.lane <> '') as children,
    r.usage, r.archived_seq, r.expired_seq
from agent_runs r where r.deleted_at is null;

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
                and f.type in ('message.start', 'message.end') and f.type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
            order by f.seq limit 1)
        where s.type in ('message.start', 'command.message') and s.type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')) x) m;

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
        from agent_run_events where type = 'tool.start' and type in ('tool.start', 'tool.end')) s
    join agent_runs r on r.koder_user_id = s.koder_user_id and r.id = s.run_id and r.deleted_at is null) t
left join agent_run_events e on e.koder_user_id = t.koder_user_id and e.run_id = t.run_id and e.seq = (
    select f.seq from agent_run_events f where f.koder_user_id = t.koder_user_id and f.run_id = t.run_id and f.seq > t.seq and f.child_id is t.child_id
        and f.type = 'tool.end' and f.type in ('tool.start', 'tool.end') and json_extract(iif(json_valid(f.line), f.line, '{}'), '$.payload.call_id') = t.call_id
    order by f.seq limit 1);
