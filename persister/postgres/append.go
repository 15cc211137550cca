package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"agentstream/persister"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// work is the content of one transaction, and its columns.
type work struct {
	*sqlstore.Work
	cols *columns
}

// Write implements sqlstore.DB. When the transaction fails because of the data and has one row, the row is stored
// without its payload, which jsonb may refuse although jsonbHolds accepts it. Only when that fails too is the row
// poison.
func (d database) Write(ctx context.Context, sw *sqlstore.Work) (persister.Result, error) {
	w := &work{Work: sw}
	res, err := d.s.store(ctx, w)
	if dataError(err) && len(w.Batch.Rows) == 1 {
		w.Batch.Rows[0].Payload = nil
		res, err = d.s.store(ctx, w)
	}
	return res, err
}

// attempts is the number of times that a transaction is tried: a partition may be dropped meanwhile, or keys be stored.
const attempts = 4

// store runs the transaction, and again when one of its partitions was dropped, or when rows to copy are stored
// already.
func (s *Store) store(ctx context.Context, w *work) (res persister.Result, err error) {
	w.cols = columnsOf(&w.Batch, s.plain)
	copying := !s.copyless.Load()
	for range attempts {
		if err = s.ensureDays(ctx, w.cols.days); sqlState(err) == undefinedTable {
			continue // another process has detached the partition meanwhile
		} else if err != nil {
			return res, err
		}
		res, err = s.transact(ctx, w, copying)
		switch {
		case err == nil:
			return res, nil
		case noPartition(err), errors.Is(err, errDetached):
			s.forgetDays()
		case copying && sqlState(err) == uniqueViolation:
			s.races.Add(1)
			copying = false
		case copying && copyRefused(err):
			if !s.copyless.Swap(true) {
				s.log.Warn("postgres: no COPY into partitions, rows are inserted instead, which is slower", "error", err)
			}
			copying = false
		default:
			return res, err
		}
	}
	return res, err
}

// transact moves the offset first: a process that is overtaken waits there, without locks that others need. Then it
// locks and moves the runs, in the order of their keys, and stores the rows and the dead letters.
func (s *Store) transact(ctx context.Context, w *work, copying bool) (res persister.Result, err error) {
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(setKeys, everyTenant).Exec(discard)
	queueOffset(&batch, w.Transfer)
	stored := make(map[schema.RunKey]storedRun, len(w.Batch.Runs))
	if len(w.Batch.Runs) > 0 {
		batch.Queue(upsertRuns, w.cols.runs()...).Query(func(rows pgx.Rows) error { return readRuns(rows, stored) })
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return res, err
	}
	defer conn.Release()
	results := conn.SendBatch(ctx, &batch)
	tx := results.Tx()
	defer func() {
		if noPartition(err) {
			// A connection that read the catalog while the partition was being attached may never see it.
			_ = tx.Conn().Close(ctx)
		}
		_ = tx.Rollback(ctx) // after a commit it does nothing; an error closes the connection
	}()
	if err = results.Close(); err == nil {
		err = checkDays(&w.Batch, stored, w.Days)
	}
	if err != nil {
		return res, err
	}
	p := planOf(&w.Batch, stored, copying)
	for _, day := range p.days {
		if err = copyDay(ctx, tx, w.cols.dayRows(day, p.ways)); err != nil {
			return res, err
		}
	}
	if res, err = insert(ctx, tx, w, &p, stored); err != nil {
		return res, err
	}
	if err = putDeadLetters(ctx, tx, w.Aside(res.Conflicts)); err != nil {
		return res, err
	}
	if err = s.PutLosses(ctx, transaction{tx}, w.Transfer); err != nil {
		return res, err
	}
	return res, tx.Commit(ctx)
}

// storedRun holds columns of a run's row that the batch needs.
type storedRun struct {
	day   string
	usage string
	asks  string
	floor schema.Seq
	last  schema.Seq // before this transaction
	named persister.Naming
}

func readRuns(rows pgx.Rows, stored map[schema.RunKey]storedRun) error {
	var key schema.RunKey
	var run storedRun
	var day time.Time
	_, err := pgx.ForEachRow(rows, []any{&key.Tenant, &key.Run, &day, &run.usage, &run.floor, &run.asks, &run.last,
		&run.named.OpeningSeq, &run.named.Model, &run.named.ModelSeq},
		func() error {
			run.day = day.Format(dayLayout)
			stored[key] = run
			return nil
		})
	return err
}

func checkDays(b *persister.Batch, stored map[schema.RunKey]storedRun, days map[schema.RunKey]string) (err error) {
	for i := range b.Runs {
		r := &b.Runs[i]
		if have, ok := stored[r.Key]; ok && have.day != r.Head.Day {
			days[r.Key] = have.day
			err = sqlstore.ErrOtherDay
		}
	}
	return err
}

// insert stores the rows that were not copied, and what depends on the rows: lanes, usage, and the rows of the views.
func insert(ctx context.Context, tx pgx.Tx, w *work, p *plan, stored map[schema.RunKey]storedRun) (persister.Result,
	error) {
	b, cols := &w.Batch, w.cols
	inserted := len(b.Rows) - p.dropped - len(p.insert)
	var batch pgx.Batch
	if args := cols.lanes(b, p); args != nil {
		batch.Queue(upsertLanes, args...)
	}
	if args := cols.stateArgs(); args != nil {
		batch.Queue(enterStates, args...)
	}
	count := func(n int) { inserted += n }
	news := newsOf(p)
	if len(p.insert) > 0 {
		cols.insert(&batch, p, news, count)
	}
	if news.doubtful { // the database reports which frames are new
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return persister.Result{}, err
		}
		batch = pgx.Batch{}
	}
	f, old := news.collect(b, p, stored, cols.dates)
	found := f.Suspects()
	found.Probe(queueRows(&batch))
	f.Each(func(text string, args ...any) { batch.Queue(text, args...) })
	found.Find(queueRows(&batch))
	if args := sums(b, stored, old); args != nil {
		batch.Queue(updateUsage, args...)
	}
	if batch.Len() > 0 {
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return persister.Result{}, err
		}
	}
	late := inserted > len(b.Rows)-p.dropped-len(p.insert)
	if err := settleRepeats(ctx, tx, b, found, stored, cols.dates, late); err != nil {
		return persister.Result{}, err
	}
	if err := mergeSessions(ctx, tx, news.sessions(b, p, cols.dates)); err != nil {
		return persister.Result{}, err
	}
	if err := nameRuns(ctx, tx, b, p, stored, cols.dates); err != nil {
		return persister.Result{}, err
	}
	if err := mergeAsks(ctx, tx, b, p, stored, cols.dates); err != nil {
		return persister.Result{}, err
	}
	return settle(ctx, tx, w, p, inserted)
}

// insert queues the rows to insert. The result of the statement reports which of their frames are new.
func (c *columns) insert(batch *pgx.Batch, p *plan, news *news, count func(int)) {
	args := c.rows(p.insert, colTenant, colDay, colRun, colSeq, colID, colChild, colType, colTS, colLine, colPayload)
	if !news.doubtful {
		batch.Queue(insertRows, args...).Exec(func(tag pgconn.CommandTag) error { count(int(tag.RowsAffected())); return nil })
		return
	}
	batch.Queue(insertReturning, args...).Query(func(rows pgx.Rows) error {
		n, err := news.read(rows)
		count(n)
		return err
	})
}

// settle returns the result for the rows.
func settle(ctx context.Context, tx pgx.Tx, w *work, p *plan, inserted int) (persister.Result, error) {
	b := &w.Batch
	res := persister.Result{Inserted: inserted, Dropped: p.dropped + len(b.Conflicts)}
	res.Conflicts = p.dropDeleted(b.Conflicts, w.Chunks)
	res.Dropped -= len(res.Conflicts)
	before := len(res.Conflicts)
	if inserted+p.dropped < len(b.Rows) {
		if err := readConflicts(ctx, tx, p.insert, w.cols, &res); err != nil {
			return persister.Result{}, err
		}
	}
	res.Repeated = len(b.Rows) - p.dropped - inserted - (len(res.Conflicts) - before)
	return res, nil
}

// readConflicts adds to res the conflicts of rows that were not inserted.
func readConflicts(ctx context.Context, tx pgx.Tx, in []persister.BatchRow, cols *columns,
	res *persister.Result) error {
	rows, err := tx.Query(ctx, findConflicts, cols.rows(in, colTenant, colDay, colRun, colSeq, colLine)...)
	if err != nil {
		return err
	}
	var i int
	_, err = pgx.ForEachRow(rows, []any{&i}, func() error {
		res.Conflicts = append(res.Conflicts, in[i-1].At)
		return nil
	})
	return err
}
