-- +goose Up

create view agent_v_dead_letters with (security_invoker = true) as
select encode(id, 'hex') as id, reason, coalesce(nullif(last_error, ''), detail) as error, buried_at as set_aside,
    koder_user_id, run_id, nullif(seq, 0) as seq, stream, position, subject, octet_length(body) as size, tries, tried_at, headers, body
from agent_dead_letters;

comment on view agent_v_dead_letters is 'one row per dead letter, for operators; see docs/sql.md';
