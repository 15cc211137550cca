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
