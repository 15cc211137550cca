package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/persister"
)

// Config says where the database is. DSN must be set.
type Config struct {
	DSN      string // URL or key=value form; may hold a password: never logged
	MaxConns int    // default: pgx's own (4 or the number of CPUs, the greater), or the DSN's
	Logger   *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if c.DSN == "" {
		return errors.New("postgres: config needs a DSN")
	}
	return nil
}

// Store is a persister.Store in PostgreSQL. Make it with Open, end it with Close.
type Store struct {
	pool  *pgxpool.Pool
	log   *slog.Logger
	plain bool // parameters are slices; see packed.plain

	mu   sync.Mutex
	days map[string]bool // partitions that are known to exist
	told bool            // Ping has said that row security is not in force

	copyless atomic.Bool  // rows are never copied: see copyRefused
	races    atomic.Int64 // transactions done again because keys of copied rows were taken
}

var _ persister.Store = (*Store)(nil)

// Open prepares a pool of connections. It does not connect: a database that is away is an outage,
// which Ping and every call tell, and not a reason to not start.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	pc, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, errors.New("postgres: the DSN cannot be read") // pgx's text may quote it
	}
	if cfg.MaxConns > 0 {
		pc.MaxConns = int32(cfg.MaxConns)
	}
	if pc.ConnConfig.RuntimeParams["application_name"] == "" {
		pc.ConnConfig.RuntimeParams["application_name"] = "agentstream"
	}
	pc.AfterConnect = func(_ context.Context, c *pgx.Conn) error { return teach(c.TypeMap()) }
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	return &Store{pool: pool, log: cfg.Logger, plain: !knowsTypes(pc.ConnConfig.DefaultQueryExecMode), days: make(map[string]bool)}, nil
}

// Close waits for the connections in use and closes all.
func (s *Store) Close() { s.pool.Close() }

// ensureDays makes the partitions for the days. They are built beside the table and attached,
// because attaching, unlike creating in place, lets readers and writers of other days go on.
func (s *Store) ensureDays(ctx context.Context, days map[string]bool) error {
	for day := range days {
		s.mu.Lock()
		known := s.days[day]
		s.mu.Unlock()
		if known {
			continue
		}
		if err := s.ensureDay(ctx, day); err != nil {
			return fmt.Errorf("postgres: make partition of %s: %w", day, err)
		}
		s.mu.Lock()
		s.days[day] = true
		s.mu.Unlock()
	}
	return nil
}

// partitionLock is the advisory lock of the transaction that makes a partition.
const partitionLock = 0x6167656e746461 // "agentda"

func (s *Store) ensureDay(ctx context.Context, day string) error {
	from, err := time.Parse(dayLayout, day)
	if err != nil {
		return fmt.Errorf("%w: %w", persister.ErrPoison, err)
	}
	name := partition(day)
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var exists, attached, leaving, lz4 bool
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, int64(partitionLock)); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `select to_regclass($1) is not null, exists (select from pg_inherits
			where inhrelid = to_regclass($1) and inhparent = 'agent_run_events'::regclass and not inhdetachpending),
			exists (select from pg_inherits where inhrelid = to_regclass($1) and inhdetachpending),
			(select 'lz4' = any (enumvals) from pg_settings where name = 'default_toast_compression')`, name).Scan(&exists, &attached, &leaving, &lz4)
		if err != nil || attached {
			return err
		}
		if !exists {
			// Row security that is not forced: the owner copies into the partition, nobody else sees a row of it.
			if _, err := tx.Exec(ctx, `create table `+name+` (like agent_run_events including all);
				alter table `+name+` enable row level security`); err != nil {
				return err
			}
		}
		if !exists && lz4 { // a server may be built without
			if _, err := tx.Exec(ctx, `alter table `+name+` alter line set compression lz4, alter payload set compression lz4`); err != nil {
				return err
			}
		}
		if leaving { // somebody began to detach it, and perhaps lives no more: rows could be stored nowhere
			// Who waits here keeps everybody away who makes a partition.
			if _, err := tx.Exec(ctx, `set local lock_timeout = 2000; alter table agent_run_events detach partition `+name+` finalize`); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, fmt.Sprintf(`alter table agent_run_events attach partition %s for values from ('%s') to ('%s')`,
			name, from.Format(time.DateOnly), from.AddDate(0, 0, 1).Format(time.DateOnly)))
		return err
	})
}

// forgetDays is called when a row found no partition: somebody has dropped it since.
func (s *Store) forgetDays() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.days)
}

// dayLayout is schema.Head.Day.
const dayLayout = "20060102"

// dataError reports whether the error is about the data sent (SQLSTATE classes 22 and 23) or about its
// size and nesting (54), and will be the same next time.
func dataError(err error) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || len(pe.Code) != 5 || noPartition(err) {
		return false
	}
	switch pe.Code[:2] {
	case "22", "23", "54":
		return true
	}
	return false
}

const (
	uniqueViolation = "23505" // SQLSTATE of a key that is taken
	undefinedTable  = "42P01" // of a table that is not there, or is not a partition
)

// noPartition reports whether a row found no partition for its day, or COPY no table. PostgreSQL reports the first
// as a violated check of the partitioned table, without the name of a constraint.
func noPartition(err error) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return false
	}
	return pe.Code == undefinedTable || pe.Code == "23514" && pe.TableName == "agent_run_events" && pe.ConstraintName == ""
}
