package sink

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/persister"
	"agentstream/schema"
	"agentstream/tap"
)

// table writes events into a table of PostgreSQL, under the key (tenant, run_id, seq).
type table struct {
	pool   *pgxpool.Pool
	insert string
}

const defaultTable = "agentstream_events"

// tableSQL makes the table. json keeps what jsonb refuses: a NUL in a text.
const tableSQL = `create table if not exists %s (
	tenant   text        not null,
	run_id   text        not null,
	seq      bigint      not null,
	child_id text,
	id       text        not null,
	type     text        not null,
	ts       timestamptz not null,
	event    json        not null,
	primary key (tenant, run_id, seq)
)`

const insertSQL = `insert into %s (tenant, run_id, seq, child_id, id, type, ts, event)
	select t, r, s, nullif(c, ''), i, k, at, e::json
	from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::text[])
		as u (t, r, s, c, i, k, at, e)
	on conflict (tenant, run_id, seq) do update set child_id = excluded.child_id, id = excluded.id, type = excluded.type,
		ts = excluded.ts, event = excluded.event
	where agentstream_target.id is distinct from excluded.id`

func openPostgres(ctx context.Context, u *url.URL, o Options) (tap.Receiver, error) {
	target := *u
	q := target.Query()
	name := q.Get("table")
	q.Del("table")
	target.RawQuery = q.Encode()
	if name == "" {
		name = defaultTable
	}
	cfg, err := pgxpool.ParseConfig(target.String())
	if err != nil {
		return nil, errors.New("not a connection string of PostgreSQL") // the library's error repeats parts of it
	}
	cfg.ConnConfig.ConnectTimeout = o.Timeout
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	t := &table{pool: pool, insert: fmt.Sprintf(insertSQL, quoted+" as agentstream_target")}
	once, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	// Who may not make tables finds the one that is there.
	if _, err := pool.Exec(once, fmt.Sprintf(tableSQL, quoted)); err != nil {
		pool.Close()
		return nil, fmt.Errorf("make the table %s: %w", name, err)
	}
	return t, nil
}

// Write implements tap.Receiver.
func (t *table) Write(ctx context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	n := len(batch)
	tenants, runs, seqs, children := make([]string, 0, n), make([]string, 0, n), make([]int64, 0, n), make([]string, 0, n)
	ids, types, times, events := make([]string, 0, n), make([]string, 0, n), make([]time.Time, 0, n), make([]string, 0, n)
	type place struct {
		run schema.RunKey
		seq schema.Seq
	}
	seen := make(map[place]bool, n) // one statement must not write a row twice
	for i := range batch {
		e := &batch[i]
		at := place{e.Run, e.Seq}
		if seen[at] {
			continue
		}
		seen[at] = true
		tenants, runs, seqs, children = append(tenants, e.Run.Tenant), append(runs, e.Run.Run), append(seqs,
			int64(e.Seq)), append(children, e.Child)
		ids, types, times, events = append(ids, e.ID), append(types, e.Type), append(times, e.TS), append(events,
			string(e.Line))
	}
	_, err := t.pool.Exec(ctx, t.insert, tenants, runs, seqs, children, ids, types, times, events)
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && (refusal.Code[:2] == "22" || refusal.Code[:2] == "23") { // data, integrity
		return nil, fmt.Errorf("%w: %w", persister.ErrPoison, err)
	}
	return nil, err
}

// Close implements tap.Receiver.
func (t *table) Close() error {
	t.pool.Close()
	return nil
}
