-- +goose Up

create view agent_v_dead_letters as
select lower(hex(id)) as id, reason, coalesce(nullif(last_error, ''), detail) as error, buried_at as set_aside,
    koder_user_id, run_id, nullif(seq, 0) as seq, stream, position, subject, length(body) as size, tries, tried_at, headers, body
from agent_dead_letters;
