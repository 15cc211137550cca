-- Of messages and calls the starts and the ends, by what they begin or end: half a SHA-256 of it, of the end greater by one.
-- An index of the ids in the lines, as files had it, reads each line as JSON when it is stored, and is asked for each line
-- whether it is in it. Who stores events keeps their ids, and removes them when the last rows of a run are removed. The tenant,
-- which is nearly always the same, is late in the key: to compare it for each place costs a third of an insert.
create table agent_run_ids (
    koder_user_id text    not null,
    run_id        text    not null,
    frame         integer not null,
    seq           integer not null,
    primary key (run_id, frame, koder_user_id, seq)
) without rowid;

-- last_seq when this was kept: programs of before do not move it. What they store after it is read when it is needed.
alter table agent_runs add column framed_seq integer not null default 0;

drop index agent_run_events_named;
