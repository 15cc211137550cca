package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/schema"
)

const upsertRuns = `
insert into agent_runs as r (koder_user_id, id, run_day, state, last_seq, last_id, anchors, first_ts, last_ts,
	first_seq, reason, reason_of, reason_seq)
select * from unnest($1::text[], $2::text[], $3::date[], $4::text[], $5::bigint[], $6::text[], $7::text[],
	$8::timestamptz[], $9::timestamptz[], $10::bigint[], $11::text[], $12::text[], $13::bigint[])
on conflict (koder_user_id, id) do update set
	state      = case when excluded.last_seq > r.last_seq then excluded.state   else r.state   end,
	last_id    = case when excluded.last_seq > r.last_seq then excluded.last_id else r.last_id end,
	anchors    = case when excluded.last_seq > r.last_seq then excluded.anchors else r.anchors end,
	last_ts    = case when excluded.last_seq > r.last_seq then excluded.last_ts else r.last_ts end,
	last_seq   = greatest(r.last_seq, excluded.last_seq),
	first_ts   = case when excluded.first_seq < r.first_seq then excluded.first_ts else r.first_ts end,
	first_seq  = least(r.first_seq, excluded.first_seq),
	reason     = case when excluded.reason_seq > r.reason_seq then excluded.reason    else r.reason    end,
	reason_of  = case when excluded.reason_seq > r.reason_seq then excluded.reason_of else r.reason_of end,
	reason_seq = greatest(r.reason_seq, excluded.reason_seq),
	updated_at = now()
returning koder_user_id, id, run_day, usage::text`

const upsertLanes = `
insert into agent_run_lanes as l (koder_user_id, run_id, lane, owner, epoch)
select t, r, lane, owner, epoch::numeric from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
	as x(t, r, lane, owner, epoch)
on conflict (koder_user_id, run_id, lane) do update set owner = excluded.owner, epoch = excluded.epoch
	where excluded.epoch > l.epoch`

// What is stored already has been counted. It is asked before the rows go in and behind the runs' locks,
// so that nobody else counts the same row.
const findCounted = `
select x.i from unnest($1::text[], $2::date[], $3::text[], $4::bigint[]) with ordinality as x(t, d, r, seq, i)
join agent_run_events e on e.koder_user_id = x.t and e.run_day = x.d and e.run_id = x.r and e.seq = x.seq`

const updateUsage = `
update agent_runs r set usage = x.usage::jsonb from unnest($1::text[], $2::text[], $3::text[]) as x(t, id, usage)
where r.koder_user_id = x.t and r.id = x.id`

const insertRows = `
insert into agent_run_events (koder_user_id, run_day, run_id, seq, id, child_id, type, ts, line, payload)
select t, d, r, seq, id, nullif(child, ''), typ, ts, line, payload::jsonb
from unnest($1::text[], $2::date[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[],
	$8::timestamptz[], $9::text[], $10::text[]) as x(t, d, r, seq, id, child, typ, ts, line, payload)
on conflict do nothing`

// The row that holds the place may be of a transaction that was open when insertRows waited for it:
// this is a statement of its own because each sees what was committed before it began.
const findConflicts = `
select x.i from unnest($1::text[], $2::date[], $3::text[], $4::bigint[], $5::text[])
	with ordinality as x(t, d, r, seq, line, i)
join agent_run_events e on e.koder_user_id = x.t and e.run_day = x.d and e.run_id = x.r and e.seq = x.seq
where e.line <> x.line
order by x.i`

// Append implements persister.Store.
func (s *Store) Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error) {
	days := make(map[schema.RunKey]string)
	for {
		b := persister.Arrange(chunks, days)
		if len(b.Rows) == 0 {
			return persister.Result{Conflicts: b.Conflicts}, nil
		}
		res, err := s.store(ctx, &b, days)
		switch {
		case err == nil:
			return res, nil
		case errors.Is(err, errOtherDay):
			continue // days has learnt the right one; the next arrangement holds
		case dataError(err) && len(b.Rows) == 1:
			return s.storeOne(ctx, &b, days)
		case dataError(err):
			err = fmt.Errorf("%w: %w", persister.ErrPoison, err)
		}
		return persister.Result{}, fmt.Errorf("postgres: append %d rows of %d runs: %w", len(b.Rows), len(b.Runs), err)
	}
}

// errOtherDay rolls a transaction back in which a run turned out to have another day.
var errOtherDay = errors.New("run is stored under another day")

// storeOne stores a row whose payload jsonb has refused although it looked fine. The line is the
// truth and is kept; only when that fails as well is the row poison.
func (s *Store) storeOne(ctx context.Context, b *persister.Batch, days map[schema.RunKey]string) (persister.Result, error) {
	row := &b.Rows[0]
	row.Payload = nil
	res, err := s.store(ctx, b, days)
	if dataError(err) {
		err = fmt.Errorf("%w: %w", persister.ErrPoison, err)
	}
	if err != nil {
		return persister.Result{}, fmt.Errorf("postgres: append run %s seq %d: %w", row.Chunk.Key, row.Seq, err)
	}
	return res, nil
}

// store runs the transaction, and once more when a partition that it counted on is gone.
func (s *Store) store(ctx context.Context, b *persister.Batch, days map[schema.RunKey]string) (res persister.Result, err error) {
	cols := columnsOf(b, s.plain)
	for range 2 {
		if err = s.ensureDays(ctx, cols.days); err != nil {
			return res, err
		}
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			res, err = transact(ctx, tx, b, cols, days)
			return err
		})
		if !noPartition(err) {
			break
		}
		s.forgetDays()
	}
	return res, err
}

// transact locks and moves the runs first, in the order of their keys, then inserts.
func transact(ctx context.Context, tx pgx.Tx, b *persister.Batch, cols *columns, days map[schema.RunKey]string) (persister.Result, error) {
	var batch pgx.Batch
	batch.Queue(upsertRuns, cols.runs()...)
	if len(cols.laneOwner) > 0 {
		batch.Queue(upsertLanes, cols.laneTenant, cols.laneRun, cols.lane, cols.laneOwner, cols.laneEpoch)
	}
	if len(cols.useSeq) > 0 {
		batch.Queue(findCounted, cols.useTenant, cols.useDay, cols.useRun, cols.useSeq)
	}
	batch.Queue(insertRows, cols.rows(colTenant, colDay, colRun, colSeq, colID, colChild, colType, colTS, colLine, colPayload)...)
	results := tx.SendBatch(ctx, &batch)
	inserted, err := readResults(results, b, cols, days)
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err == nil && len(cols.sumUsage) > 0 {
		_, err = tx.Exec(ctx, updateUsage, cols.sumTenant, cols.sumRun, cols.sumUsage)
	}
	if err != nil {
		return persister.Result{}, err
	}
	res := persister.Result{Inserted: inserted, Conflicts: b.Conflicts}
	if inserted < len(b.Rows) {
		if err := conflicts(ctx, tx, b, cols, &res); err != nil {
			return persister.Result{}, err
		}
	}
	res.Repeated = len(b.Rows) - inserted - (len(res.Conflicts) - len(b.Conflicts))
	return res, nil
}

func readResults(results pgx.BatchResults, b *persister.Batch, cols *columns, days map[schema.RunKey]string) (inserted int, err error) {
	rows, err := results.Query()
	if err != nil {
		return 0, err
	}
	stored := make(map[schema.RunKey]storedRun, len(b.Runs))
	var key schema.RunKey
	var run storedRun
	if _, err = pgx.ForEachRow(rows, []any{&key.Tenant, &key.Run, &run.day, &run.usage}, func() error {
		stored[key] = run
		return nil
	}); err != nil {
		return 0, err
	}
	for i := range b.Runs {
		r := &b.Runs[i]
		if day := stored[r.Key].day.Format(dayLayout); day != r.Head.Day {
			days[r.Key] = day
			err = errOtherDay
		}
	}
	if err != nil {
		return 0, err
	}
	if len(cols.laneOwner) > 0 {
		if _, err := results.Exec(); err != nil {
			return 0, err
		}
	}
	if len(cols.useSeq) > 0 {
		if err := cols.sum(results, b, stored); err != nil {
			return 0, err
		}
	}
	tag, err := results.Exec()
	return int(tag.RowsAffected()), err
}

// storedRun is what a run's row says that the batch does not.
type storedRun struct {
	day   time.Time
	usage string
}

// sum reads which usage has been counted and adds the rest to what is stored.
func (c *columns) sum(results pgx.BatchResults, b *persister.Batch, stored map[schema.RunKey]storedRun) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	counted := make(map[schema.RunKey]map[schema.Seq]bool)
	var i int
	if _, err = pgx.ForEachRow(rows, []any{&i}, func() error {
		key := schema.RunKey{Tenant: c.useTenant[i-1], Run: c.useRun[i-1]}
		if counted[key] == nil {
			counted[key] = make(map[schema.Seq]bool)
		}
		counted[key][schema.Seq(c.useSeq[i-1])] = true
		return nil
	}); err != nil {
		return err
	}
	for i := range b.Runs {
		r := &b.Runs[i]
		if sum := r.Digest.Sum(counted[r.Key]); len(sum) > 0 {
			c.sumTenant, c.sumRun = append(c.sumTenant, r.Key.Tenant), append(c.sumRun, r.Key.Run)
			c.sumUsage = append(c.sumUsage, schema.ParseUsage(stored[r.Key].usage).Plus(sum).String())
		}
	}
	return nil
}

func conflicts(ctx context.Context, tx pgx.Tx, b *persister.Batch, cols *columns, res *persister.Result) error {
	rows, err := tx.Query(ctx, findConflicts, cols.rows(colTenant, colDay, colRun, colSeq, colLine)...)
	if err != nil {
		return err
	}
	var i int
	_, err = pgx.ForEachRow(rows, []any{&i}, func() error {
		res.Conflicts = append(res.Conflicts, b.Rows[i-1].At)
		return nil
	})
	return err
}

// columns gives a batch as one array per column: a round trip takes the same time for one row and for
// thousands. The rows' own are written when the statement is sent.
type columns struct {
	runTenant, runID, runState, runLastID, runAnchors []string
	runDay, runFirst, runLast                         []time.Time
	runSeq, runFirstSeq, runReasonSeq                 []int64
	runReason, runReasonOf                            []string

	useTenant, useRun []string // events with a usage
	useDay            []time.Time
	useSeq            []int64

	sumTenant, sumRun, sumUsage []string // runs whose usage grows

	laneTenant, laneRun, lane, laneOwner, laneEpoch []string

	batch *persister.Batch
	dates map[string]time.Time
	plain bool // see packed.plain

	days map[string]bool
}

func columnsOf(b *persister.Batch, plain bool) *columns {
	c := &columns{batch: b, dates: make(map[string]time.Time), plain: plain, days: make(map[string]bool)}
	for i := range b.Runs {
		r := &b.Runs[i]
		day, _ := time.Parse(dayLayout, r.Head.Day) // ensureDays refuses what does not parse
		c.dates[r.Head.Day], c.days[r.Head.Day] = day, true
		c.runTenant, c.runID = append(c.runTenant, r.Key.Tenant), append(c.runID, r.Key.Run)
		c.runDay, c.runState = append(c.runDay, day), append(c.runState, string(r.Head.State))
		c.runSeq, c.runLastID = append(c.runSeq, int64(r.Head.Last)), append(c.runLastID, r.Head.LastID)
		c.runAnchors = append(c.runAnchors, schema.FormatAnchors(r.Head.Anchors))
		c.runFirst, c.runLast = append(c.runFirst, r.FirstTS), append(c.runLast, r.LastTS)
		c.runFirstSeq, c.runReasonSeq = append(c.runFirstSeq, int64(r.First)), append(c.runReasonSeq, int64(r.Digest.ReasonSeq))
		c.runReason, c.runReasonOf = append(c.runReason, r.Digest.Reason), append(c.runReasonOf, string(r.Digest.ReasonOf))
		for _, u := range r.Digest.Usage {
			c.useTenant, c.useRun = append(c.useTenant, r.Key.Tenant), append(c.useRun, r.Key.Run)
			c.useDay, c.useSeq = append(c.useDay, day), append(c.useSeq, int64(u.Seq))
		}
		for name, l := range r.Lanes {
			c.laneTenant, c.laneRun = append(c.laneTenant, r.Key.Tenant), append(c.laneRun, r.Key.Run)
			c.lane, c.laneOwner = append(c.lane, name), append(c.laneOwner, l.Owner)
			c.laneEpoch = append(c.laneEpoch, strconv.FormatUint(l.Epoch, 10))
		}
	}
	return c
}

func (c *columns) runs() []any {
	return []any{c.runTenant, c.runID, c.runDay, c.runState, c.runSeq, c.runLastID, c.runAnchors, c.runFirst, c.runLast,
		c.runFirstSeq, c.runReason, c.runReasonOf, c.runReasonSeq}
}

// rows gives columns of the rows.
func (c *columns) rows(which ...column) []any {
	const least = 64 // bytes of a row's values beside its line, with their lengths, about
	room := 0
	if !c.plain {
		for i := range c.batch.Rows {
			room += least + 2*len(c.batch.Rows[i].Line)
		}
	}
	args := make([]any, len(which))
	for i, name := range which {
		p := packed{column: name, rows: c.batch.Rows, dates: c.dates}
		if i == 0 {
			p.room = room
		}
		args[i] = p
		if c.plain {
			args[i] = p.plain()
		}
	}
	return args
}
