-- +goose Up

-- All that a search of the list looks at, in the order of the list. The last two columns are those of the condition:
-- without them SQLite looks into the table for each run.
drop index agent_runs_words;
create index agent_runs_words on agent_runs (koder_user_id, first_ts desc, id desc, state, reason_of, reason, title, tags, model,
    session_agent, words, expired_at, deleted_at) where expired_at is null and deleted_at is null;
