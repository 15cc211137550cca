-- +goose Up

-- Functions that read JSON of producers. None of them fails, whatever it is given.

create function agent_text(v jsonb) returns text language sql immutable parallel safe as
$$ select case jsonb_typeof(v) when 'string' then v #>> '{}' when 'null' then null else v::text end $$;
comment on function agent_text is 'a text as it is, everything else as JSON';

create function agent_content_text(content jsonb) returns text language sql immutable parallel safe as
$$ select case jsonb_typeof(content)
    when 'string' then content #>> '{}'
    when 'array' then (select coalesce(string_agg(b ->> 'text', '' order by n), '')
        from jsonb_array_elements(content) with ordinality x (b, n) where b ->> 'type' = 'text') end $$;
comment on function agent_content_text is 'the text blocks of a message''s content, joined';

-- What the views read, without partitions: a query of those is planned for all of them. A row says of one event what
-- that event says and nothing of others, so it does not matter in which order they are stored; which end belongs to
-- which start is found when it is asked. Version 11 fills in what is stored already.

create table agent_run_messages (
    koder_user_id text collate "C" not null,
    run_id        text collate "C" not null,
    lane          text collate "C" not null,
    kind          text collate "C" not null,
    seq           bigint      not null,
    run_day       date        not null,
    ts            timestamptz not null,
    message_id    text collate "C" not null,
    role          text collate "C" not null,
    model         text collate "C" not null,
    stop_reason   text collate "C" not null,
    primary key (koder_user_id, run_id, lane, kind, seq)
);

comment on table agent_run_messages is 'one row per command.message (kind user), message.start (start) and message.end (end). Goes with its event';
comment on column agent_run_messages.lane is 'the child; empty for the run itself';

-- Written so that a search for one kind cannot use it: for that there is the key.
create index agent_run_messages_begun on agent_run_messages (koder_user_id, ts) where (kind = 'end') is not true;

create table agent_run_tool_calls (
    koder_user_id text collate "C" not null,
    run_id        text collate "C" not null,
    lane          text collate "C" not null,
    call_id       text collate "C" not null,
    kind          text collate "C" not null,
    seq           bigint      not null,
    run_day       date        not null,
    ts            timestamptz not null,
    tool          text collate "C" not null,
    outcome       text collate "C" not null,
    duration_ms   double precision,
    primary key (koder_user_id, run_id, lane, call_id, kind, seq)
);

comment on table agent_run_tool_calls is 'one row per tool.start (kind start) and tool.end (end). Goes with its event';
comment on column agent_run_tool_calls.call_id is 'of a long one the beginning and a hash';

create index agent_run_tool_calls_begun on agent_run_tool_calls (koder_user_id, ts) where (kind = 'end') is not true;

create table agent_run_usage (
    koder_user_id text collate "C" not null,
    run_id        text collate "C" not null,
    seq           bigint  not null,
    child_id      text collate "C",
    day           date    not null,
    start_seq     bigint  not null default 0,
    model         text collate "C" not null default '',
    reported      boolean not null,
    input_tokens  bigint  not null,
    output_tokens bigint  not null,
    cache_read_tokens  bigint not null,
    cache_write_tokens bigint not null,
    cost          double precision,
    primary key (koder_user_id, run_id, seq)
);

comment on table agent_run_usage is 'one row per message.end: whose model was asked on which day and what it used. Stays when the events expire, goes when the run is deleted';
comment on column agent_run_usage.day is 'UTC day of the message.end';
comment on column agent_run_usage.start_seq is 'the message.start it belongs to, whose model it has; 0 while that is not stored';
comment on column agent_run_usage.reported is 'the message said what it used';
comment on column agent_run_usage.cost is 'what the provider said it costs; null where it said nothing';

create index agent_run_usage_days on agent_run_usage (koder_user_id, day)
    include (model, reported, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost);

call agent_secure('agent_run_messages');
call agent_secure('agent_run_tool_calls');
call agent_secure('agent_run_usage');

-- A run that is to be forgotten takes all of this along.
-- +goose StatementBegin
create function agent_run_forgotten() returns trigger language plpgsql as $$
begin
    delete from agent_run_usage where koder_user_id = old.koder_user_id and run_id = old.id;
    delete from agent_run_messages where koder_user_id = old.koder_user_id and run_id = old.id;
    delete from agent_run_tool_calls where koder_user_id = old.koder_user_id and run_id = old.id;
    return null;
end $$;
-- +goose StatementEnd

create trigger agent_run_forgotten after update of deleted_at on agent_runs for each row
    when (new.deleted_at is not null) execute function agent_run_forgotten();
create trigger agent_run_deleted after delete on agent_runs for each row execute function agent_run_forgotten();

-- What models cost. Operators fill it in.
create table agent_model_prices (
    model       text    not null check (model <> ''),
    valid_from  date    not null default '2000-01-01',
    input       numeric not null check (input >= 0),
    output      numeric not null check (output >= 0),
    cache_read  numeric not null default 0 check (cache_read >= 0),
    cache_write numeric not null default 0 check (cache_write >= 0),
    primary key (model, valid_from)
);

comment on table agent_model_prices is 'prices per million tokens. Of several that fit, the longest model counts, then the newest that is valid';
comment on column agent_model_prices.model is 'name of a model; * stands for anything';

-- The views have the rights of whoever asks: row security is his.

create view agent_v_runs with (security_invoker = true) as
select r.koder_user_id, r.id as run_id, nullif(r.state, '') as state,
    case when r.state = r.reason_of then nullif(r.reason, '') end as reason,
    r.first_ts as started, r.last_ts as updated,
    case when r.state in ('done', 'error', 'aborted') then r.last_ts end as ended,
    case when r.state in ('done', 'error', 'aborted') then r.last_ts - r.first_ts end as duration,
    r.last_seq as events, u.messages, u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens, u.models,
    (select count(*) from agent_run_lanes l where l.koder_user_id = r.koder_user_id and l.run_id = r.id and l.lane <> '') as children,
    r.usage, r.archived_seq, r.expired_seq
from agent_runs r
left join lateral (
    select count(*) as messages, coalesce(sum(input_tokens), 0)::numeric as input_tokens, coalesce(sum(output_tokens), 0)::numeric as output_tokens,
        coalesce(sum(cache_read_tokens), 0)::numeric as cache_read_tokens, coalesce(sum(cache_write_tokens), 0)::numeric as cache_write_tokens,
        array_agg(distinct x.model order by x.model) filter (where x.model <> '') as models
    from agent_run_usage x where x.koder_user_id = r.koder_user_id and x.run_id = r.id) u on true
where r.deleted_at is null;

-- What is in the events is read by functions: where the day stands in the statement, one partition is planned for, where
-- it comes from a join, all of them are. Their rights are those of whoever asks.

-- +goose StatementBegin
create function agent_event_payload(tenant text, day date, run text, at bigint) returns jsonb
    language plpgsql stable parallel safe set plan_cache_mode = force_custom_plan as $$
begin
    return (select e.payload from agent_run_events e where e.koder_user_id = tenant and e.run_day = day and e.run_id = run and e.seq = at);
end $$;
-- +goose StatementEnd
comment on function agent_event_payload is 'the payload of an event; null where jsonb could not hold it';

-- +goose StatementBegin
create function agent_message_text(tenant text, day date, run text, child text, after bigint, ended bigint, before bigint) returns text
    language plpgsql stable parallel safe set plan_cache_mode = force_custom_plan as $$
declare
    told jsonb;
begin
    if ended is not null then
        told := (select e.payload from agent_run_events e where e.koder_user_id = tenant and e.run_day = day and e.run_id = run and e.seq = ended);
        if told ? 'content' then
            return agent_content_text(told -> 'content');
        end if;
    end if;
    return (select case when bool_and(d.payload is not null) then string_agg(d.text, '' order by d.seq) else case when count(*) = 0 then '' end end
        from (select e.seq, e.payload, coalesce(e.payload ->> 'text', '') as text, sum(octet_length(e.payload ->> 'text')) over (order by e.seq) as upto
            from agent_run_events e
            where e.koder_user_id = tenant and e.run_day = day and e.run_id = run and e.seq > after and e.seq < coalesce(before, 9223372036854775807)
                and e.type = 'text.delta' and coalesce(e.child_id, '') = child) d
        where d.upto is null or d.upto <= 16777216);
end $$;
-- +goose StatementEnd
comment on function agent_message_text is 'text of the content of a message.end; without content, the text deltas of the lane before it, joined, up to 16 MiB, null where jsonb could not hold one of them';

create view agent_v_messages with (security_invoker = true) as
select s.koder_user_id, s.run_id, nullif(s.lane, '') as child_id, s.seq, coalesce(e.seq, n.seq) as end_seq, nullif(s.message_id, '') as message_id,
    nullif(s.role, '') as role, nullif(s.model, '') as model, s.ts as started, case s.kind when 'user' then s.ts else coalesce(e.ts, n.ts) end as ended,
    case s.kind when 'user' then agent_content_text(agent_event_payload(s.koder_user_id, s.run_day, s.run_id, s.seq) -> 'content')
        else agent_message_text(s.koder_user_id, s.run_day, s.run_id, s.lane, s.seq, e.seq, coalesce(e.seq, n.seq)) end as text,
    nullif(e.stop_reason, '') as stop_reason,
    case when e.seq is not null then agent_event_payload(s.koder_user_id, s.run_day, s.run_id, e.seq) -> 'error' end as error,
    case when e.seq is not null then agent_event_payload(s.koder_user_id, s.run_day, s.run_id, e.seq) -> 'usage' end as usage,
    u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens
from agent_run_messages s
left join lateral (
    select n.seq, n.ts from agent_run_messages n
    where n.koder_user_id = s.koder_user_id and n.run_id = s.run_id and n.lane = s.lane and n.kind = 'start' and n.seq > s.seq
    order by n.seq limit 1) n on s.kind = 'start'
left join lateral (
    select e.seq, e.ts, e.stop_reason from agent_run_messages e
    where e.koder_user_id = s.koder_user_id and e.run_id = s.run_id and e.lane = s.lane and e.kind = 'end' and e.seq > s.seq
        and (n.seq is null or e.seq < n.seq)
    order by e.seq limit 1) e on s.kind = 'start'
left join agent_run_usage u on u.koder_user_id = s.koder_user_id and u.run_id = s.run_id and u.seq = e.seq
where (s.kind = 'end') is not true;

create view agent_v_tool_calls with (security_invoker = true) as
select s.koder_user_id, s.run_id, nullif(s.lane, '') as child_id, s.seq, e.seq as end_seq, nullif(s.call_id, '') as call_id, nullif(s.tool, '') as tool,
    agent_event_payload(s.koder_user_id, s.run_day, s.run_id, s.seq) -> 'input' as input,
    agent_event_payload(s.koder_user_id, s.run_day, s.run_id, s.seq) ->> 'skill_id' as skill_id, nullif(e.outcome, '') as outcome,
    case when e.seq is not null then agent_text(agent_event_payload(s.koder_user_id, s.run_day, s.run_id, e.seq) -> 'error') end as error,
    case when e.seq is not null then agent_event_payload(s.koder_user_id, s.run_day, s.run_id, e.seq) -> 'output' end as output,
    s.ts as started, e.ts as ended, coalesce(e.duration_ms, (extract(epoch from e.ts - s.ts) * 1000)::double precision) as duration_ms
from agent_run_tool_calls s
left join lateral (
    select e.seq, e.ts, e.outcome, e.duration_ms from agent_run_tool_calls e
    where e.koder_user_id = s.koder_user_id and e.run_id = s.run_id and e.lane = s.lane and e.call_id = s.call_id and e.kind = 'end' and e.seq > s.seq
    order by e.seq limit 1) e on true
where (s.kind = 'end') is not true;

create view agent_v_usage_daily with (security_invoker = true) as
select g.koder_user_id, g.day, nullif(g.model, '') as model, g.messages, g.calls,
    g.input_tokens, g.output_tokens, g.cache_read_tokens, g.cache_write_tokens,
    case when g.untold = 0 then round(g.told::numeric, 6)
        when p.model is not null then round(coalesce(g.told, 0)::numeric + (g.untold_input * p.input + g.untold_output * p.output
            + g.untold_read * p.cache_read + g.untold_write * p.cache_write) / 1000000, 6) end as cost
from (
    select koder_user_id, day, model, count(*) as messages, count(*) filter (where reported) as calls,
        sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens, sum(cache_read_tokens) as cache_read_tokens,
        sum(cache_write_tokens) as cache_write_tokens, sum(cost) as told, count(*) filter (where reported and cost is null) as untold,
        coalesce(sum(input_tokens) filter (where cost is null), 0) as untold_input,
        coalesce(sum(output_tokens) filter (where cost is null), 0) as untold_output,
        coalesce(sum(cache_read_tokens) filter (where cost is null), 0) as untold_read,
        coalesce(sum(cache_write_tokens) filter (where cost is null), 0) as untold_write
    from agent_run_usage group by koder_user_id, day, model) g
left join lateral (
    select * from agent_model_prices p
    where p.valid_from <= g.day and g.model like replace(replace(replace(replace(p.model, '\', '\\'), '_', '\_'), '%', '\%'), '*', '%')
    order by length(p.model) desc, p.valid_from desc limit 1) p on true;

comment on view agent_v_runs is 'one row per run; see docs/sql.md';
comment on view agent_v_messages is 'one row per message, with its text; see docs/sql.md';
comment on view agent_v_tool_calls is 'one row per tool call, with outcome and duration; see docs/sql.md';
comment on view agent_v_usage_daily is 'tokens and cost per tenant, day (UTC) and model; see docs/sql.md';
