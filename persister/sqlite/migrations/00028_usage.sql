-- +goose Up

-- What views and lists read of messages, apart from their events: to read the usage of a message in its JSON takes 40 times as
-- long. A row says of one event what that event says and nothing of others, so it does not matter in which order they are
-- stored. Rows stay when events expire, and go when their run is deleted.
create table agent_run_usage (
    koder_user_id text    not null,
    run_id        text    not null,
    seq           integer not null,
    lane          text    not null,
    day           text    not null,
    reported      integer not null,
    input_tokens  integer not null,
    output_tokens integer not null,
    cache_read_tokens  integer not null,
    cache_write_tokens integer not null,
    cost          real,
    primary key (koder_user_id, run_id, seq)
) without rowid;

create index agent_run_usage_days on agent_run_usage (koder_user_id, day);

-- The model of each message.start; null where it names none.
create table agent_run_models (
    koder_user_id text    not null,
    run_id        text    not null,
    lane          text    not null,
    seq           integer not null,
    model         text,
    primary key (koder_user_id, run_id, lane, seq)
) without rowid;

-- Reads events of both kinds. An event takes its place by being inserted: whoever stores events does so, since a trigger
-- on the table of events would cost each of them 2 microseconds, a sixth of all that it costs to store one.
create view agent_run_frames as select koder_user_id, run_id, seq, child_id, type, ts, line from agent_run_events;

-- LIMIT keeps SQLite from reading the payload again for each column.
-- +goose StatementBegin
create trigger agent_run_frames_usage instead of insert on agent_run_frames when new.type = 'message.end' begin
    insert or ignore into agent_run_usage (koder_user_id, run_id, seq, lane, day, reported, input_tokens, output_tokens,
        cache_read_tokens, cache_write_tokens, cost)
    select new.koder_user_id, new.run_id, new.seq, coalesce(new.child_id, ''), coalesce(date(new.ts), ''), u is not null,
        max(coalesce(input, 0) - coalesce(within, 0), 0), coalesce(output, 0) + coalesce(thoughts, 0),
        coalesce(cache_read, within, 0), coalesce(cache_write, 0), iif(cost >= 0, cost, null)
    from (select u, coalesce(iif(json_type(u, '$.input_tokens') = 'integer', json_extract(u, '$.input_tokens'), null),
            iif(json_type(u, '$.prompt_tokens') = 'integer', json_extract(u, '$.prompt_tokens'), null),
            iif(json_type(u, '$.promptTokenCount') = 'integer', json_extract(u, '$.promptTokenCount'), null)) as input,
        coalesce(iif(json_type(u, '$.output_tokens') = 'integer', json_extract(u, '$.output_tokens'), null),
            iif(json_type(u, '$.completion_tokens') = 'integer', json_extract(u, '$.completion_tokens'), null),
            iif(json_type(u, '$.candidatesTokenCount') = 'integer', json_extract(u, '$.candidatesTokenCount'), null)) as output,
        iif(json_type(u, '$.thoughtsTokenCount') = 'integer', json_extract(u, '$.thoughtsTokenCount'), null) as thoughts,
        coalesce(iif(json_type(u, '$.input_tokens_details.cached_tokens') = 'integer', json_extract(u, '$.input_tokens_details.cached_tokens'), null),
            iif(json_type(u, '$.prompt_tokens_details.cached_tokens') = 'integer', json_extract(u, '$.prompt_tokens_details.cached_tokens'), null),
            iif(json_type(u, '$.cachedContentTokenCount') = 'integer', json_extract(u, '$.cachedContentTokenCount'), null)) as within,
        iif(json_type(u, '$.cache_read_input_tokens') = 'integer', json_extract(u, '$.cache_read_input_tokens'), null) as cache_read,
        iif(json_type(u, '$.cache_creation_input_tokens') = 'integer', json_extract(u, '$.cache_creation_input_tokens'), null) as cache_write,
        coalesce(iif(json_type(u, '$.cost') in ('integer', 'real'), json_extract(u, '$.cost'), null),
            iif(json_type(u, '$.cost_usd') in ('integer', 'real'), json_extract(u, '$.cost_usd'), null),
            iif(json_type(u, '$.total_cost_usd') in ('integer', 'real'), json_extract(u, '$.total_cost_usd'), null)) as cost
        from (select iif(json_type(p, '$.usage') = 'object', json_extract(p, '$.usage'), null) as u
            from (select iif(json_valid(new.line), json_extract(new.line, '$.payload'), null) as p,
                json_type(iif(json_valid(new.line), new.line, '{}'), '$.payload') as kind limit 1)
            where kind = 'object' limit 1) limit 1);
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger agent_run_frames_model instead of insert on agent_run_frames when new.type = 'message.start' begin
    insert or ignore into agent_run_models (koder_user_id, run_id, lane, seq, model) values (new.koder_user_id, new.run_id,
        coalesce(new.child_id, ''), new.seq, iif(json_type(iif(json_valid(new.line), new.line, '{}'), '$.payload.model') = 'text',
            substr(json_extract(new.line, '$.payload.model'), 1, 200), null));
end;
-- +goose StatementEnd

-- What a repeat says is gone before its mark is.
-- +goose StatementBegin
create trigger agent_run_events_expired after delete on agent_run_events when old.type in ('message.start', 'message.end')
    and exists (select 1 from agent_run_repeats x where x.koder_user_id = old.koder_user_id and x.run_id = old.run_id and x.seq = old.seq) begin
    delete from agent_run_usage where koder_user_id = old.koder_user_id and run_id = old.run_id and seq = old.seq;
    delete from agent_run_models where koder_user_id = old.koder_user_id and run_id = old.run_id and lane = coalesce(old.child_id, '') and seq = old.seq;
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger agent_run_forgotten after update of deleted_at on agent_runs when new.deleted_at is not null begin
    delete from agent_run_usage where koder_user_id = old.koder_user_id and run_id = old.id;
    delete from agent_run_models where koder_user_id = old.koder_user_id and run_id = old.id;
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger agent_run_deleted after delete on agent_runs begin
    delete from agent_run_usage where koder_user_id = old.koder_user_id and run_id = old.id;
    delete from agent_run_models where koder_user_id = old.koder_user_id and run_id = old.id;
end;
-- +goose StatementEnd

insert into agent_run_frames select e.koder_user_id, e.run_id, e.seq, e.child_id, e.type, e.ts, e.line from agent_run_events e
    where e.type in ('message.start', 'message.end') and e.type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
        and not exists (select 1 from agent_runs r where r.koder_user_id = e.koder_user_id and r.id = e.run_id and r.deleted_at is not null);

drop view agent_v_usage;
create view agent_v_usage as
select u.koder_user_id, u.run_id, nullif(u.lane, '') as child_id, u.seq, u.day,
    (select m.model from agent_run_models m where m.koder_user_id = u.koder_user_id and m.run_id = u.run_id and m.lane = u.lane and m.seq < u.seq
        and not exists (select 1 from agent_run_repeats x where x.koder_user_id = m.koder_user_id and x.run_id = m.run_id and x.seq = m.seq)
        order by m.seq desc limit 1) as model,
    u.reported, u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens, u.cost
from agent_run_usage u
where not exists (select 1 from agent_run_repeats x where x.koder_user_id = u.koder_user_id and x.run_id = u.run_id and x.seq = u.seq);
