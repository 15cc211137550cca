-- +goose Up

-- Text that is compared byte by byte (ids, keys) has collation "C": the order of bytes is what the
-- log uses, and it does not change with the operating system's locale tables.

create table agent_runs (
    koder_user_id text collate "C" not null,
    id            text collate "C" not null,
    run_day       date        not null,
    state         text        not null default '',
    last_seq      bigint      not null,
    last_id       text        not null,
    anchors       text        not null default '',
    first_ts      timestamptz not null,
    last_ts       timestamptz not null,
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    replay_uri    text,
    primary key (koder_user_id, id)
) with (fillfactor = 70);

comment on table agent_runs is 'one row per run: its head after the newest event stored';
comment on column agent_runs.run_day is 'UTC day of the run''s first event; constant per run; names its partition';
comment on column agent_runs.anchors is 'open messages: <lane>=<seq of message.start>,…; the root lane is -';
comment on column agent_runs.replay_uri is 'where the run lies as compressed JSONL, once it is archived';

create table agent_run_lanes (
    koder_user_id text collate "C" not null,
    run_id        text collate "C" not null,
    lane          text collate "C" not null,
    owner         text        not null,
    epoch         numeric(20) not null,
    primary key (koder_user_id, run_id, lane)
);

comment on table agent_run_lanes is 'the last owner of the run itself (lane '''') and of each child, for fencing';

create table agent_run_events (
    koder_user_id text collate "C" not null,
    run_day       date        not null,
    run_id        text collate "C" not null,
    seq           bigint      not null,
    id            text collate "C" not null,
    child_id      text collate "C",
    type          text collate "C" not null,
    ts            timestamptz not null,
    payload       jsonb,
    line          text collate "C" not null,
    primary key (koder_user_id, run_day, run_id, seq)
) partition by range (run_day);

comment on column agent_run_events.line is 'the event as it came, without line feed: what replay gives out';
comment on column agent_run_events.payload is 'for queries; null where jsonb cannot hold it';

-- What moves a run's state and its open messages: read once at the beginning of a replay.
create index agent_run_events_frames on agent_run_events (koder_user_id, run_day, run_id, seq)
    where type in ('run.lifecycle', 'command.message', 'message.start', 'message.end');

create table agent_dead_letters (
    id            bytea primary key,
    stream        text        not null,
    position      numeric(20) not null,
    seq           bigint      not null,
    koder_user_id text collate "C",
    run_id        text collate "C",
    subject       text        not null,
    headers       bytea       not null,
    body          bytea       not null,
    reason        text        not null,
    detail        text        not null,
    buried_at     timestamptz not null default now()
);

create index agent_dead_letters_run on agent_dead_letters (koder_user_id, run_id, seq);

comment on table agent_dead_letters is 'what the log took and the tables could not: original bytes, with the reason';
comment on column agent_dead_letters.id is 'hash of place, reason and body: a message that comes again is buried once';
comment on column agent_dead_letters.headers is 'name: value lines, ended by CR LF';
