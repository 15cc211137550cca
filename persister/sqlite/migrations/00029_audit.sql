-- +goose Up

create view agent_v_audit as
select koder_user_id, seq, ts, json_extract(line, '$.payload.action') as action, json_extract(line, '$.payload.run_id') as run_id,
    json_extract(line, '$.payload.caller') as caller, json_extract(line, '$.payload.credential') as credential,
    json_extract(line, '$.payload.via') as via, json_extract(line, '$.payload.route') as route, json_extract(line, '$.payload.event') as event,
    json_extract(line, '$.payload.seq') as event_seq, json_extract(line, '$.payload.reason') as reason,
    json_extract(line, '$.payload.detail') as detail, coalesce(json_extract(line, '$.payload.count'), 1) as count
from agent_run_events
where koder_user_id >= '_audit' and koder_user_id < '_audiu' and run_id = 'audit' and type like 'custom.audit.%';
