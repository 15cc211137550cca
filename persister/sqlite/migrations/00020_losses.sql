-- +goose Up

create table agent_log_losses (
    stream      text    not null, -- messages of the log that were never stored and are gone; a row stays for ever
    identity    text    not null, -- of the stream
    first       integer not null, -- their positions
    last        integer not null, -- 0: how many there were is not known
    reason      text    not null, -- dropped, before, renewed
    found_at    text    not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    restored_at text,             -- of before: when the runs of all objects had been restored
    primary key (stream, identity, first)
) without rowid;

create table agent_run_losses (
    koder_user_id text    not null, -- events that are neither in the log nor in the archive; a row stays for ever
    run_id        text    not null,
    first         integer not null,
    last          integer not null,
    reason        text    not null, -- as above; object: the rows had left, and their object does not exist
    found_at      text    not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    primary key (koder_user_id, run_id, first)
) without rowid;
