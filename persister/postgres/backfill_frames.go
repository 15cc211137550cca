package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/pressly/goose/v3"

	"agentstream/schema"
)

// framesMigration fills in what the views read of events that are stored already. It is not SQL because what
// counts is decided in one place.
func framesMigration() *goose.Migration {
	return goose.NewGoMigration(11, &goose.GoFunc{RunTx: collectFrames}, nil)
}

const addCallColumns = `alter table agent_run_tool_calls add column if not exists start_seq bigint not null default 0,
	add column if not exists took_ms double precision`

// framesPage is how many events are worked on at a time.
const framesPage = 2000

// collectFrames reads the whole table once, in whichever order.
func collectFrames(ctx context.Context, tx *sql.Tx) error {
	for _, text := range []string{
		`lock table agent_runs, agent_run_events in share row exclusive mode`, // readers go on, persisters wait
		addCallColumns, // of version 17, which the statements know
		`declare frames no scroll cursor for
			select koder_user_id, run_day, run_id, seq, coalesce(child_id, ''), type, ts, line from agent_run_events
			where type in ('message.start', 'message.end', 'command.message', 'tool.start', 'tool.end')`,
		`set local enable_seqscan = off`, // see setKeys; the cursor has its plan
		`set local enable_hashjoin = off`,
		`set local enable_mergejoin = off`,
	} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	for {
		f, n, err := fetchFrames(ctx, tx)
		if err != nil || n == 0 {
			return err
		}
		f.each(func(text string, args ...any) {
			if err == nil {
				_, err = tx.ExecContext(ctx, text, args...)
			}
		})
		if err != nil {
			return err
		}
	}
}

func fetchFrames(ctx context.Context, tx *sql.Tx) (f frames, n int, err error) {
	err = eachRow(ctx, tx, func(scan func(...any) error) error {
		var at place
		var typ string
		var line []byte
		var day, ts time.Time
		if err := scan(&at.key.Tenant, &day, &at.key.Run, &at.seq, &at.lane, &typ, &ts, &line); err != nil {
			return err
		}
		n++
		at.day, at.ts = day, ts
		r, err := schema.ScanLine(line)
		if errors.Is(err, schema.ErrMalformed) {
			f.add(&at, typ, nil)
			return nil
		}
		f.add(&at, typ, r.Payload())
		return err
	}, "fetch "+strconv.Itoa(framesPage)+" from frames")
	return f, n, err
}
