-- +goose Up

create table agent_runs (
    koder_user_id text    not null,
    id            text    not null,
    run_day       text    not null, -- YYYYMMDD
    state         text    not null default '',
    last_seq      integer not null,
    last_id       text    not null,
    anchors       text    not null default '', -- open messages: <lane>=<seq>,…
    first_ts      text    not null, -- UTC, RFC 3339 with nine digits: comparable as text
    last_ts       text    not null,
    created_at    text    not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    updated_at    text    not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    replay_uri    text,
    primary key (koder_user_id, id)
) without rowid;

create table agent_run_lanes (
    koder_user_id text not null,
    run_id        text not null,
    lane          text not null,
    owner         text not null,
    epoch         text not null, -- twenty digits: comparable as text, and greater than an integer holds
    primary key (koder_user_id, run_id, lane)
) without rowid;

-- A table in the order in which rows come. WITHOUT ROWID, as files of earlier programs have it, each row of a run that
-- goes on is put into the middle of the table, whose pages it divides, and inner pages hold whole lines. No statement
-- depends on which of the two it is.
create table agent_run_events (
    koder_user_id text    not null,
    run_id        text    not null,
    seq           integer not null,
    run_day       text    not null,
    id            text    not null,
    child_id      text,
    type          text    not null,
    ts            text    not null, -- as the producer wrote it
    line          text    not null, -- the event as it came, without line feed
    payload       text generated always as (json_extract(line, '$.payload')) virtual,
    primary key (koder_user_id, run_id, seq)
);

-- Earlier files have one condition here: the type is one of the four. SQLite makes a table of such a list for every row
-- that is inserted. A query uses the index when one of its conditions is written exactly like one of these.
create index agent_run_events_frames on agent_run_events (koder_user_id, run_id, seq)
    where type = 'message.start' or type = 'message.end' or type in ('message.start', 'message.end')
        or type in ('run.lifecycle', 'command.message') or type in ('message.start', 'command.message');

create table agent_dead_letters (
    id            blob primary key,
    stream        text    not null,
    position      text    not null, -- twenty digits
    seq           integer not null,
    koder_user_id text,
    run_id        text,
    subject       text    not null,
    headers       blob    not null,
    body          blob    not null,
    reason        text    not null,
    detail        text    not null,
    buried_at     text    not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

create index agent_dead_letters_run on agent_dead_letters (koder_user_id, run_id, seq);
