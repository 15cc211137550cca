package tables

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"
)

//go:embed search.sql
var searchObjects string

const dropSearch = `
drop trigger if exists agent_run_messages_told on agent_run_messages;
drop trigger if exists agent_run_messages_gone on agent_run_messages;
drop function if exists agent_search, agent_words_of, agent_run_messages_told, agent_run_messages_gone;
drop table if exists agent_run_words`

// indexStored indexes the messages that are stored already. Messages that are open have no words until they end.
const indexStored = `
insert into agent_run_words (koder_user_id, run_id, lane, seq, ts, words)
select s.koder_user_id, s.run_id, s.lane, s.seq, s.ts, agent_words_of(case s.kind
	when 'user' then agent_content_text(agent_event_payload(s.koder_user_id, s.run_day, s.run_id, s.seq) -> 'content')
	else agent_message_text(s.koder_user_id, s.run_day, s.run_id, s.lane, s.seq, e.seq, e.seq) end)
from agent_run_messages s left join lateral (
	select e.seq from agent_run_messages e where e.koder_user_id = s.koder_user_id and e.run_id = s.run_id and e.lane = s.lane
		and e.kind in ('start', 'end') and e.seq > s.seq order by e.seq limit 1) e on s.kind = 'start'
where s.kind = 'user' or s.kind = 'start' and exists (select from agent_run_messages x where x.koder_user_id = s.koder_user_id
	and x.run_id = s.run_id and x.lane = s.lane and x.kind = 'end' and x.seq = e.seq)
on conflict do nothing`

// SetSearch creates the index of the words of messages, which agent_search reads, or removes it. Rows can be stored
// meanwhile. It may be called again: an existing index is built again.
func SetSearch(ctx context.Context, dsn string, on bool) error {
	db, err := Open(dsn)
	if err != nil {
		return fmt.Errorf("postgres: search: %w", err)
	}
	err = setSearch(ctx, db, on)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("postgres: search: %w", err)
	}
	return nil
}

func setSearch(ctx context.Context, db *sql.DB, on bool) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, dropSearch)
	if err == nil && on {
		var place string // not from the search path, in which a caller could put tables of the same names first
		err = tx.QueryRowContext(ctx, `select quote_ident(relnamespace::regnamespace::text) from pg_class where oid = 'agent_runs'::regclass`).Scan(&place)
		if err == nil {
			_, err = tx.ExecContext(ctx, strings.ReplaceAll(searchObjects, "SCHEMA", place))
		}
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err = tx.Commit(); err != nil || !on {
		return err
	}
	for _, text := range []string{indexStored,
		`create index concurrently agent_run_words_words on agent_run_words using gin (words)`, `analyze agent_run_words`} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}
