-- +goose Up

-- Readers go on, persisters wait: what they stored meanwhile would be missing below.
lock table agent_runs, agent_run_events in share row exclusive mode;

-- Functions that read JSON of producers. None of them fails, whatever it is given.

create function agent_whole(v jsonb) returns bigint language sql immutable parallel safe as
$$ select case jsonb_typeof(v) when 'number' then
    case when v::numeric between 0 and 1e15 and v::numeric = trunc(v::numeric) then v::numeric::bigint end end $$;
comment on function agent_whole is 'a whole number of at most 10^15, null for all else';

create function agent_number(v jsonb) returns double precision language sql immutable parallel safe as
$$ select case jsonb_typeof(v) when 'number' then
    case when v::numeric between 0 and 1e15 then round(v::numeric, 9)::double precision end end $$;
comment on function agent_number is 'a number of at most 10^15, null for all else';

create function agent_text(v jsonb) returns text language sql immutable parallel safe as
$$ select case jsonb_typeof(v) when 'string' then v #>> '{}' when 'null' then null else v::text end $$;
comment on function agent_text is 'a text as it is, everything else as JSON';

create function agent_content_text(content jsonb) returns text language sql immutable parallel safe as
$$ select case jsonb_typeof(content)
    when 'string' then content #>> '{}'
    when 'array' then (select coalesce(string_agg(b ->> 'text', '' order by n), '')
        from jsonb_array_elements(content) with ordinality x (b, n) where b ->> 'type' = 'text') end $$;
comment on function agent_content_text is 'the text blocks of a message''s content, joined';

-- What providers count, under common names. Tokens from a cache are part of the input at some, beside it at others:
-- here they are beside it.
-- Not in SQL: a function in SQL that gives a row is planned anew each time it is called.
-- +goose StatementBegin
create function agent_tokens(usage jsonb, out input bigint, out output bigint, out cache_read bigint, out cache_write bigint,
    out cost double precision) language plpgsql immutable parallel safe as $$
declare
    within bigint := coalesce(agent_whole(usage -> 'input_tokens_details' -> 'cached_tokens'),
        agent_whole(usage -> 'prompt_tokens_details' -> 'cached_tokens'), agent_whole(usage -> 'cachedContentTokenCount'));
begin
    input := greatest(coalesce(agent_whole(usage -> 'input_tokens'), agent_whole(usage -> 'prompt_tokens'),
        agent_whole(usage -> 'promptTokenCount'), 0) - coalesce(within, 0), 0);
    output := coalesce(agent_whole(usage -> 'output_tokens'), agent_whole(usage -> 'completion_tokens'),
        agent_whole(usage -> 'candidatesTokenCount'), 0) + coalesce(agent_whole(usage -> 'thoughtsTokenCount'), 0);
    cache_read := coalesce(agent_whole(usage -> 'cache_read_input_tokens'), within, 0);
    cache_write := coalesce(agent_whole(usage -> 'cache_creation_input_tokens'), 0);
    cost := coalesce(agent_number(usage -> 'cost'), agent_number(usage -> 'cost_usd'), agent_number(usage -> 'total_cost_usd'));
end $$;
-- +goose StatementEnd
comment on function agent_tokens is 'input without what came from a cache, output, tokens read from and written to a cache, and the cost that the provider told';

-- Usage, one row per message.end: what is summed for months must not be looked for among all events. A
-- trigger writes it, so it is exactly as often there as the event, whichever way that came into the tables.

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

-- The newest message.start of each lane, for the message.end that follows.
create table agent_run_models (
    koder_user_id text collate "C" not null,
    run_id        text collate "C" not null,
    lane          text collate "C" not null,
    start_seq     bigint not null,
    model         text collate "C" not null,
    primary key (koder_user_id, run_id, lane)
) with (fillfactor = 70);

comment on table agent_run_models is 'the newest message.start of each lane and its model, for the usage of the message.end behind it';

call agent_secure('agent_run_usage');
call agent_secure('agent_run_models');

-- jsonb cannot hold some payloads. What counts usage is found in them all the same: escapes that jsonb
-- refuses are left out. Null where that does not help.
-- +goose StatementBegin
create function agent_lenient(line text) returns jsonb language plpgsql immutable as $$
begin
    return regexp_replace(line, '(\\\\)|\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1', 'g')::jsonb -> 'payload';
exception when others then
    return null;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function agent_message_started() returns trigger language plpgsql as $$
declare
    of_model text := left(coalesce(agent_text(coalesce(new.payload, agent_lenient(new.line)) -> 'model'), ''), 200);
begin
    insert into agent_run_models as m values (new.koder_user_id, new.run_id, coalesce(new.child_id, ''), new.seq, of_model)
        on conflict (koder_user_id, run_id, lane) do update set start_seq = excluded.start_seq, model = excluded.model
        where m.start_seq < excluded.start_seq;
    -- A message.end that was stored before its message.start.
    update agent_run_usage u set start_seq = new.seq, model = of_model
        where u.koder_user_id = new.koder_user_id and u.run_id = new.run_id and u.seq > new.seq and u.start_seq < new.seq
            and u.child_id is not distinct from new.child_id;
    return null;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function agent_message_ended() returns trigger language plpgsql as $$
declare
    usage jsonb := coalesce(new.payload, agent_lenient(new.line)) -> 'usage';
    began bigint;
    of_model text;
begin
    select m.start_seq, m.model into began, of_model from agent_run_models m
        where m.koder_user_id = new.koder_user_id and m.run_id = new.run_id and m.lane = coalesce(new.child_id, '');
    if began > new.seq then -- it came late, and another message has begun since
        select s.seq, left(coalesce(agent_text(coalesce(s.payload, agent_lenient(s.line)) -> 'model'), ''), 200) into began, of_model
            from agent_run_events s
            where s.koder_user_id = new.koder_user_id and s.run_day = new.run_day and s.run_id = new.run_id and s.seq < new.seq
                and s.type = 'message.start' and s.type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
                and s.child_id is not distinct from new.child_id
            order by s.seq desc limit 1;
    end if;
    insert into agent_run_usage select new.koder_user_id, new.run_id, new.seq, new.child_id, (new.ts at time zone 'UTC')::date,
        coalesce(began, 0), coalesce(of_model, ''), coalesce(jsonb_typeof(usage), '') = 'object',
        t.input, t.output, t.cache_read, t.cache_write, t.cost from agent_tokens(usage) t
        on conflict do nothing;
    return null;
end $$;
-- +goose StatementEnd

-- What is stored already. The whole table is read once.
insert into agent_run_models
    select distinct on (koder_user_id, run_id, coalesce(child_id, '')) koder_user_id, run_id, coalesce(child_id, ''), seq,
        left(coalesce(agent_text(coalesce(payload, agent_lenient(line)) -> 'model'), ''), 200)
    from agent_run_events where type = 'message.start'
    order by koder_user_id, run_id, coalesce(child_id, ''), seq desc;

insert into agent_run_usage
    select e.koder_user_id, e.run_id, e.seq, e.child_id, (e.ts at time zone 'UTC')::date, coalesce(e.began, 0),
        left(coalesce(agent_text(coalesce(s.payload, agent_lenient(s.line)) -> 'model'), ''), 200),
        coalesce(jsonb_typeof(e.payload -> 'usage'), '') = 'object', t.input, t.output, t.cache_read, t.cache_write, t.cost
    from (select koder_user_id, run_day, run_id, seq, child_id, ts, type, coalesce(payload, agent_lenient(line)) as payload,
            max(seq) filter (where type = 'message.start') over (partition by koder_user_id, run_day, run_id, child_id order by seq) as began
        from agent_run_events where type in ('message.start', 'message.end')) e
    left join agent_run_events s on s.koder_user_id = e.koder_user_id and s.run_day = e.run_day and s.run_id = e.run_id and s.seq = e.began
    cross join lateral agent_tokens(e.payload -> 'usage') t
    where e.type = 'message.end';

create trigger agent_message_started after insert on agent_run_events for each row
    when (new.type = 'message.start') execute function agent_message_started();
create trigger agent_message_ended after insert on agent_run_events for each row
    when (new.type = 'message.end') execute function agent_message_ended();

-- A run that is to be forgotten takes its usage along.
-- +goose StatementBegin
create function agent_run_forgotten() returns trigger language plpgsql as $$
begin
    delete from agent_run_usage where koder_user_id = old.koder_user_id and run_id = old.id;
    delete from agent_run_models where koder_user_id = old.koder_user_id and run_id = old.id;
    return null;
end $$;
-- +goose StatementEnd

create trigger agent_run_forgotten after update of deleted_at on agent_runs for each row
    when (new.deleted_at is not null) execute function agent_run_forgotten();
create trigger agent_run_deleted after delete on agent_runs for each row execute function agent_run_forgotten();

-- What the views look for, few rows among many. Comparisons of payloads cannot use an index under row security.
create index agent_run_events_messages on agent_run_events (koder_user_id, ts) where type in ('message.start', 'command.message');
create index agent_run_events_calls on agent_run_events (koder_user_id, ts) where type = 'tool.start';
create index agent_run_events_tools on agent_run_events (koder_user_id, run_day, run_id, seq) where type in ('tool.start', 'tool.end');

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

-- A function of its own, planned when it is called: few messages need it, and a plan for all partitions is dear.
-- +goose StatementBegin
create function agent_folded_text(tenant text, day date, run text, child text, after bigint, before bigint) returns text
    language plpgsql stable parallel safe set plan_cache_mode = force_custom_plan as $$
begin
    return (select case when bool_and(d.payload is not null) then string_agg(d.text, '' order by d.seq) else case when count(*) = 0 then '' end end
        from (select e.seq, e.payload, coalesce(e.payload ->> 'text', '') as text, sum(octet_length(e.payload ->> 'text')) over (order by e.seq) as upto
            from agent_run_events e
            where e.koder_user_id = tenant and e.run_day = day and e.run_id = run and e.seq > after and e.seq < coalesce(before, 9223372036854775807)
                and e.type = 'text.delta' and e.child_id is not distinct from child) d
        where d.upto is null or d.upto <= 16777216);
end $$;
-- +goose StatementEnd
comment on function agent_folded_text is 'text deltas between two events of a lane, joined, up to 16 MiB; null where jsonb could not hold one of them';

create view agent_v_messages with (security_invoker = true) as
select s.koder_user_id, s.run_id, s.child_id, s.seq, e.seq as end_seq, s.payload ->> 'message_id' as message_id,
    case s.type when 'command.message' then 'user' else s.payload ->> 'role' end as role, s.payload ->> 'model' as model,
    s.ts as started, case s.type when 'command.message' then s.ts else e.ts end as ended,
    case when s.type = 'command.message' then agent_content_text(s.payload -> 'content')
        when e.type = 'message.end' and e.payload ? 'content' then agent_content_text(e.payload -> 'content')
        else agent_folded_text(s.koder_user_id, s.run_day, s.run_id, s.child_id, s.seq, e.seq) end as text,
    e.payload ->> 'stop_reason' as stop_reason, e.payload -> 'error' as error, e.payload -> 'usage' as usage,
    t.input as input_tokens, t.output as output_tokens, t.cache_read as cache_read_tokens, t.cache_write as cache_write_tokens
from agent_runs r
join agent_run_events s on s.koder_user_id = r.koder_user_id and s.run_day = r.run_day and s.run_id = r.id
left join lateral (
    select e.seq, e.type, e.ts, case when e.type = 'message.end' then e.payload end as payload from agent_run_events e
    where e.koder_user_id = s.koder_user_id and e.run_day = s.run_day and e.run_id = s.run_id and e.seq > s.seq
        and e.child_id is not distinct from s.child_id and e.type in ('message.start', 'message.end')
        and e.type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
    order by e.seq limit 1) e on s.type = 'message.start'
left join lateral agent_tokens(e.payload -> 'usage') t on e.payload is not null
where s.type in ('message.start', 'command.message') and r.deleted_at is null;

create view agent_v_tool_calls with (security_invoker = true) as
select s.koder_user_id, s.run_id, s.child_id, s.seq, e.seq as end_seq, s.payload ->> 'call_id' as call_id, s.payload ->> 'tool' as tool,
    s.payload -> 'input' as input, s.payload ->> 'skill_id' as skill_id,
    case e.payload -> 'ok' when 'true' then 'ok' when 'false' then 'failed' end as outcome,
    agent_text(e.payload -> 'error') as error, e.payload -> 'output' as output, s.ts as started, e.ts as ended,
    coalesce(agent_number(e.payload -> 'duration_ms'), (extract(epoch from e.ts - s.ts) * 1000)::double precision) as duration_ms
from agent_runs r
join agent_run_events s on s.koder_user_id = r.koder_user_id and s.run_day = r.run_day and s.run_id = r.id
left join lateral (
    select e.seq, e.ts, e.payload from (
        select e.seq, e.ts, e.payload from agent_run_events e
        where e.koder_user_id = s.koder_user_id and e.run_day = s.run_day and e.run_id = s.run_id and e.seq > s.seq
            and e.child_id is not distinct from s.child_id and e.type = 'tool.end' and e.type in ('tool.start', 'tool.end')
        order by e.seq limit 10000) e
    where e.payload -> 'call_id' = s.payload -> 'call_id' order by e.seq limit 1) e on true
where s.type = 'tool.start' and r.deleted_at is null;

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
