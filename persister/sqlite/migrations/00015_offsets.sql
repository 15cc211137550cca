-- +goose Up

create table agent_log_offsets (
    stream     text primary key, -- how far each stream of the log is stored; moved in the transaction that stores the rows
    identity   text    not null, -- of the stream: one that was made anew has another
    generation integer not null, -- how often the log came back shorter than what is stored of it, or as another one
    position   integer not null, -- the messages of the stream up to here are stored
    stored_at  integer not null, -- when the log stored the message at position: nanoseconds since 1970, by the log's clock; 0: unknown
    owner      text    not null, -- the persister that moved it last
    moved_at   text    not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) -- when that was
) without rowid;
