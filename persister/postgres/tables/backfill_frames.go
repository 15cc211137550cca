package tables

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/pressly/goose/v3"

	"agentstream/persister/postgres/projection"
	"agentstream/schema"
)

// framesMigration fills the tables of the views from events that are stored already. It is Go, not SQL, so that one
// place decides what counts.
func framesMigration() *goose.Migration {
	return goose.NewGoMigration(11, &goose.GoFunc{RunTx: collectFrames}, nil)
}

const addCallColumns = `alter table agent_run_tool_calls add column if not exists start_seq bigint not null default 0,
	add column if not exists took_ms double precision`

// framesPage is the number of events of one fetch.
const framesPage = 2000

// collectFrames reads the whole table once, in any order.
func collectFrames(ctx context.Context, tx *sql.Tx) error {
	for _, text := range []string{
		`lock table agent_runs, agent_run_events in share row exclusive mode`, // readers continue, persisters wait
		addCallColumns, // of version 17, which the statements of package projection use
		`declare frames no scroll cursor for
			select koder_user_id, run_day, run_id, seq, coalesce(child_id, ''), type, ts, line from agent_run_events
			where type in ('message.start', 'message.end', 'command.message', 'tool.start', 'tool.end')`,
		`set local enable_seqscan = off`, // the statements look up keys; the cursor has its plan already
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
		f.Each(func(text string, args ...any) {
			if err == nil {
				_, err = tx.ExecContext(ctx, text, args...)
			}
		})
		if err != nil {
			return err
		}
	}
}

func fetchFrames(ctx context.Context, tx *sql.Tx) (f projection.Frames, n int, err error) {
	err = eachRow(ctx, tx, func(scan func(...any) error) error {
		var at projection.Place
		var typ string
		var line []byte
		var day, ts time.Time
		if err := scan(&at.Key.Tenant, &day, &at.Key.Run, &at.Seq, &at.Lane, &typ, &ts, &line); err != nil {
			return err
		}
		n++
		at.Day, at.TS = day, ts
		r, err := schema.ScanLine(line)
		if errors.Is(err, schema.ErrMalformed) {
			f.Add(&at, typ, nil)
			return nil
		}
		f.Add(&at, typ, r.Payload())
		return err
	}, "fetch "+strconv.Itoa(framesPage)+" from frames")
	return f, n, err
}
