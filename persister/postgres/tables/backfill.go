package tables

import (
	"context"
	"database/sql"
	"time"

	"github.com/pressly/goose/v3"

	"agentstream/persister"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// known are the migrations of this program.
var known = sqlstore.NewMigrations(migrations,
	map[int64]string{4: "digest_runs", 11: "collect_frames", 18: "collect_asks", 22: "settle_repeats", 24: "name_runs"})

// digestMigration fills in the usage and the reason of runs that are stored already. It is Go, not SQL, so that one
// place decides what counts as usage.
func digestMigration() *goose.Migration {
	return goose.NewGoMigration(4, &goose.GoFunc{RunTx: digestRuns}, nil)
}

// digestPage is the number of runs that are worked on at a time.
const digestPage = 500

func digestRuns(ctx context.Context, tx *sql.Tx) error {
	for _, set := range []string{
		`lock table agent_runs in share row exclusive mode`, // readers continue, persisters wait
		`set local enable_hashjoin = off`,                   // a page of runs is looked up, never joined with all events
		`set local enable_mergejoin = off`,
	} {
		if _, err := tx.ExecContext(ctx, set); err != nil {
			return err
		}
	}
	var p digestedPage
	for {
		more, err := p.read(ctx, tx)
		if err != nil || !more {
			return err
		}
		if err := p.write(ctx, tx); err != nil {
			return err
		}
	}
}

// digestedPage is a page of runs, in the order of their keys, with the digests of their events.
type digestedPage struct {
	tenant, day, run []string
	digests          map[schema.RunKey]*persister.Digest
}

// read reads the next page. It reports whether there was one.
func (p *digestedPage) read(ctx context.Context, tx *sql.Tx) (more bool, err error) {
	var last schema.RunKey
	if n := len(p.run); n > 0 {
		last = schema.RunKey{Tenant: p.tenant[n-1], Run: p.run[n-1]}
	}
	*p = digestedPage{digests: make(map[schema.RunKey]*persister.Digest)}
	err = eachRow(ctx, tx, func(scan func(...any) error) error {
		var key schema.RunKey
		var day string
		if err := scan(&key.Tenant, &key.Run, &day); err != nil {
			return err
		}
		p.tenant, p.run, p.day = append(p.tenant, key.Tenant), append(p.run, key.Run), append(p.day, day)
		p.digests[key] = new(persister.Digest)
		return nil
	}, `select koder_user_id, id, run_day::text from agent_runs where (koder_user_id, id) > ($1, $2)
		order by koder_user_id, id limit $3`, last.Tenant, last.Run, digestPage)
	if err != nil || len(p.run) == 0 {
		return false, err
	}
	return true, eachRow(ctx, tx, func(scan func(...any) error) error {
		var key schema.RunKey
		var seq schema.Seq
		var typ, child string
		var line []byte
		if err := scan(&key.Tenant, &key.Run, &seq, &typ, &child, &line); err != nil {
			return err
		}
		if r, err := schema.ScanLine(line); err == nil {
			p.digests[key].Add(seq, time.Time{}, typ, child, r.Payload())
		}
		return nil
	}, `select e.koder_user_id, e.run_id, e.seq, e.type, coalesce(e.child_id, ''), e.line
		from unnest($1::text[], $2::date[], $3::text[]) as x(t, d, r)
		join agent_run_events e on e.koder_user_id = x.t and e.run_day = x.d and e.run_id = x.r
		where e.type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
			and e.type in ('run.lifecycle', 'message.end')`, p.tenant, p.day, p.run)
}

func (p *digestedPage) write(ctx context.Context, tx *sql.Tx) error {
	var usage, reason, of []string
	var seq []int64
	for i := range p.run {
		d := p.digests[schema.RunKey{Tenant: p.tenant[i], Run: p.run[i]}]
		usage, reason, of = append(usage, d.Sum(nil).String()), append(reason, d.Reason), append(of, string(d.ReasonOf))
		seq = append(seq, int64(d.ReasonSeq))
	}
	_, err := tx.ExecContext(ctx, `
		update agent_runs r set usage = x.usage::jsonb, reason = x.reason, reason_of = x.reason_of, reason_seq = x.reason_seq
		from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[])
			as x(t, id, usage, reason, reason_of, reason_seq)
		where r.koder_user_id = x.t and r.id = x.id`, p.tenant, p.run, usage, reason, of, seq)
	return err
}

func eachRow(ctx context.Context, tx *sql.Tx, fn func(scan func(...any) error) error, query string, args ...any) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
