-- The table of events as programs up to 2026-11 made it. Files that they made keep it.
drop table agent_run_events;

create table agent_run_events (
    koder_user_id text    not null,
    run_id        text    not null,
    seq           integer not null,
    run_day       text    not null,
    id            text    not null,
    child_id      text,
    type          text    not null,
    ts            text    not null,
    line          text    not null,
    payload       text generated always as (json_extract(line, '$.payload')) virtual,
    primary key (koder_user_id, run_id, seq)
) without rowid;

create index agent_run_events_frames on agent_run_events (koder_user_id, run_id, seq)
    where type in ('run.lifecycle', 'command.message', 'message.start', 'message.end');

create index agent_run_events_tools on agent_run_events (koder_user_id, run_id, seq) where type in ('tool.start', 'tool.end');

-- Migration 28 makes this on the table of every file. It has gone with the table above.
create trigger agent_run_events_expired after delete on agent_run_events when old.type in ('message.start', 'message.end')
    and exists (select 1 from agent_run_repeats x where x.koder_user_id = old.koder_user_id and x.run_id = old.run_id and x.seq = old.seq) begin
    delete from agent_run_usage where koder_user_id = old.koder_user_id and run_id = old.run_id and seq = old.seq;
    delete from agent_run_models where koder_user_id = old.koder_user_id and run_id = old.run_id and lane = coalesce(old.child_id, '') and seq = old.seq;
end;
