package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Bounds of the time that others may wait while a partition is dropped.
const (
	dropLockWait = 500 * time.Millisecond // for a lock: later requests for the table wait after this one
	dropTime     = 3 * time.Second        // for other transactions that use the partition
	quietTime    = time.Second            // for transactions that look at the table before anything is begun
)

// errWatched reports that a long transaction uses the table.
var errWatched = errors.New("a transaction that is not done looks at the table")

// DropDays drops the partitions of those days of which no run has rows any more, and returns the days. A partition that
// is in use is left for the next call.
//
// A partition is detached CONCURRENTLY, during which only the creation of partitions waits. Then, with the table
// locked, runs of the day are checked again. If one of them has new events, its rows are in this table, and the table
// is attached again. An append that finds no partition creates it again.
func (s *Store) DropDays(ctx context.Context, days []string) (dropped []string, err error) {
	if err := s.finishDrops(ctx); err != nil {
		return nil, fmt.Errorf("postgres: drop partitions: %w", err)
	}
	for _, day := range days {
		gone, err := s.dropDay(ctx, day)
		if errors.Is(err, errWatched) { // it would delay the other days as well
			s.log.Info("postgres: partitions are left for later", "err", err)
			return dropped, nil
		}
		if busy(err) {
			s.log.Info("postgres: partition is in use, left for later", "day", day, "err", err)
			continue
		}
		if err != nil {
			return dropped, fmt.Errorf("postgres: drop partition of %s: %w", day, err)
		}
		if gone {
			dropped = append(dropped, day)
		}
	}
	return dropped, nil
}

// LiveRuns returns the number of runs of a day that have rows above their floor, and reports whether its partition
// exists.
func (s *Store) LiveRuns(ctx context.Context, day string) (runs int, exists bool, err error) {
	date, err := time.Parse(dayLayout, day)
	if err == nil {
		err = s.query(ctx, everyTenant, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&runs, &exists}, func() error { return nil })
			return err
		}, `select count(*), to_regclass($2) is not null from agent_runs where run_day = $1 and last_seq > floor_seq`,
			date, partition(day))
	}
	if err != nil {
		return 0, false, fmt.Errorf("postgres: runs of %s: %w", day, err)
	}
	return runs, exists, nil
}

// busy reports whether err means that a lock was not available in time.
func busy(err error) bool {
	var pe *pgconn.PgError
	return errors.Is(err, errWatched) || errors.As(err, &pe) &&
		(pe.Code == "55P03" || pe.Code == "57014" || pe.Code == "40P01")
}

func (s *Store) dropDay(ctx context.Context, day string) (bool, error) {
	if _, err := time.Parse(dayLayout, day); err != nil {
		return false, err
	}
	live, exists, err := s.LiveRuns(ctx, day)
	if err != nil || !exists || live > 0 {
		return false, err
	}
	if err := s.detach(ctx, partition(day), "concurrently"); err != nil {
		return false, err
	}
	return s.removeDetached(ctx, day)
}

// detach detaches a partition. how is "concurrently" or "finalize". Meanwhile no partition can be created: it would be
// created beside a half-detached one. It uses one connection and no other, because a pool may be small.
func (s *Store) detach(ctx context.Context, table, how string) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := quiet(ctx, conn, table); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `select pg_advisory_lock($1)`, int64(partitionLock)); err != nil {
		return err
	}
	err = execBounded(ctx, conn, `alter table agent_run_events detach partition `+pgx.Identifier{table}.Sanitize()+` `+how)
	if _, uerr := conn.Exec(context.WithoutCancel(ctx), `select pg_advisory_unlock($1)`,
		int64(partitionLock)); err == nil {
		err = uerr
	}
	return err
}

// selectUsers returns the transactions that use agent_run_events or one table. Every role may see which transactions
// hold locks, but not for how long.
const selectUsers = `select coalesce(array_agg(distinct virtualtransaction), '{}') from pg_locks
	where locktype = 'relation' and pid is distinct from pg_backend_pid() and relation in ('agent_run_events'::regclass, to_regclass($1))
		and database = (select oid from pg_database where datname = current_database())
		and ($2::text[] is null or virtualtransaction = any ($2))`

// quiet waits for the transactions that use the table now, for a bounded time. Later ones do not matter. A partition
// that stays half-detached, because a report runs for hours, accepts no rows until the report ends: it is better not to
// begin.
func quiet(ctx context.Context, conn *pgxpool.Conn, table string) error {
	var of []string
	for end := time.Now().Add(quietTime); ; {
		if err := conn.QueryRow(ctx, selectUsers, table, of).Scan(&of); err != nil || len(of) == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %d of them: %w", table, len(of), errWatched)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// execBounded runs a statement outside of a transaction, for a bounded time. When it times out finishDrops
// completes it.
func execBounded(ctx context.Context, conn *pgxpool.Conn, text string) error {
	if _, err := conn.Exec(ctx, fmt.Sprintf("set lock_timeout = %d; set statement_timeout = %d",
		dropTime.Milliseconds(), dropTime.Milliseconds())); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, text)
	if _, rerr := conn.Exec(context.WithoutCancel(ctx), "reset lock_timeout; reset statement_timeout"); err == nil {
		err = rerr
	}
	return err
}

// removeDetached drops a detached table, or attaches it again when a run of its day has new events.
func (s *Store) removeDetached(ctx context.Context, day string) (dropped bool, err error) {
	date, err := time.Parse(dayLayout, day)
	if err != nil {
		return false, err
	}
	err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		dropped = false
		if _, err := tx.Exec(ctx, fmt.Sprintf("set local lock_timeout = %d", dropLockWait.Milliseconds())); err != nil {
			return err
		}
		// The lock of ensureDay, which must not create a partition while this one is attached again.
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, int64(partitionLock)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `lock table `+partition(day)+` in access exclusive mode`); err != nil {
			return err
		}
		var live, back bool // an append may have attached it again already
		err := tx.QueryRow(ctx, `select exists (select from agent_runs where run_day = $1 and last_seq > floor_seq),
			(select relispartition from pg_class where oid = to_regclass($2))`, date, partition(day)).Scan(&live, &back)
		if err != nil || back {
			return err
		}
		if live {
			_, err = tx.Exec(ctx, fmt.Sprintf(`alter table agent_run_events attach partition %s for values from ('%s') to ('%s')`,
				partition(day), date.Format(time.DateOnly), date.AddDate(0, 0, 1).Format(time.DateOnly)))
			return err
		}
		dropped = true
		_, err = tx.Exec(ctx, `drop table `+partition(day))
		return err
	})
	return dropped && err == nil, err
}

// finishDrops completes interrupted drops: of half-detached partitions, and of detached tables that still exist.
func (s *Store) finishDrops(ctx context.Context) error {
	var pending []string
	rows, err := s.pool.Query(ctx, `select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
		where i.inhparent = 'agent_run_events'::regclass and i.inhdetachpending`)
	if err == nil {
		pending, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return err
	}
	for _, name := range pending {
		if err := s.detach(ctx, name, "finalize"); err != nil && !busy(err) {
			return err
		}
	}
	rows, err = s.pool.Query(ctx, `select substr(c.relname, 18) from pg_class c
		where c.relname ~ '^agent_run_events_[0-9]{8}$' and c.relkind = 'r' and not c.relispartition
			and c.relnamespace = (select relnamespace from pg_class where oid = 'agent_run_events'::regclass)`)
	var days []string
	if err == nil {
		days, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return err
	}
	for _, day := range days {
		if _, err := s.removeDetached(ctx, day); err != nil && !busy(err) {
			return err
		}
	}
	return nil
}

// aloneLock is the advisory lock of the process that runs Alone.
const aloneLock = 0x6167656e74616c // "agental"

// Alone runs fn unless another process is in Alone, and reports whether it ran.
func (s *Store) Alone(ctx context.Context, fn func(context.Context) error) (ran bool, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("postgres: be the only one: %w", err)
	}
	defer conn.Release()
	if err := conn.QueryRow(ctx, `select pg_try_advisory_lock($1)`, int64(aloneLock)).Scan(&ran); err != nil {
		return false, fmt.Errorf("postgres: be the only one: %w", err)
	}
	if !ran {
		return false, nil
	}
	defer func() {
		var freed bool
		uerr := conn.QueryRow(context.WithoutCancel(ctx), `select pg_advisory_unlock($1)`, int64(aloneLock)).Scan(&freed)
		if uerr != nil || !freed { // close a connection that may still hold the lock
			_ = conn.Hijack().Close(context.WithoutCancel(ctx))
		}
	}()
	return true, fn(ctx)
}
