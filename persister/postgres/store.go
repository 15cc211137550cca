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

	"agentstream/internal/fair"
	"agentstream/persister"
	"agentstream/persister/sqlstore"
)

// Config configures a Store. DSN must be set.
type Config struct {
	DSN string // URL or key=value form; it may hold a password and is never logged
	// Fresh returns the DSN as it is now, for the password of each new connection; nil: DSN. A password file that the
	// DSN names is read again in any case.
	Fresh    func() string
	MaxConns int // default: pgx's own (4 or the number of CPUs, the greater), or the DSN's
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

// Store is a persister.Store in PostgreSQL. Create it with Open and close it with Close.
type Store struct {
	sqlstore.Store // reads and changes that all SQL stores have in common

	pool  pool
	log   *slog.Logger
	conns *fair.Slots // of pool, for one tenant
	plain bool        // parameters are slices; see packed.plain

	mu     sync.Mutex
	days   map[string]bool // partitions that are known to exist
	warned bool            // Ping has warned that row security is not in force

	copyless atomic.Bool  // rows are never copied: see copyRefused
	races    atomic.Int64 // transactions repeated because copied rows were stored already
}

var _ persister.Store = (*Store)(nil)

// Open prepares a pool of connections. It does not connect: when the database is away, Ping and all other calls return
// errors until it is back.
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
	pc.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { return cfg.refresh(c) }
	pc.AfterConnect = func(_ context.Context, c *pgx.Conn) error { return registerPacked(c.TypeMap()) }
	conns, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	s := &Store{pool: pool{conns}, log: cfg.Logger, conns: sqlstore.Connections(int(pc.MaxConns)),
		plain: !canAskTypes(pc.ConnConfig.DefaultQueryExecMode), days: make(map[string]bool)}
	s.Store = sqlstore.New(database{s}, s, dialect)
	return s, nil
}

// refresh sets the password of a connection, and its certificates, to what they are now. What else the DSN says stays
// as it was.
func (c *Config) refresh(conn *pgx.ConnConfig) error {
	dsn := c.DSN
	if c.Fresh != nil {
		dsn = c.Fresh()
	}
	now, err := pgx.ParseConfig(dsn)
	if err != nil {
		return errors.New("postgres: the DSN cannot be read") // pgx's text may quote it
	}
	conn.Password = now.Password
	if now.Host == conn.Host && len(now.Fallbacks) == len(conn.Fallbacks) {
		conn.TLSConfig, conn.Fallbacks = now.TLSConfig, now.Fallbacks // files with other authorities and another certificate
	}
	return nil
}

// Close waits until no connection is in use and closes all.
func (s *Store) Close() { s.pool.Close() }

// ensureDays creates the partitions for the days. They are created as tables and then attached, because attaching,
// unlike creating in place, does not stop readers and writers of other days.
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

// partitionLock is the advisory lock of a transaction that creates a partition.
const partitionLock = 0x6167656e746461 // "agentda"

func (s *Store) ensureDay(ctx context.Context, day string) error {
	from, err := time.Parse(dayLayout, day)
	if err != nil {
		return fmt.Errorf("%w: %w", persister.ErrPoison, err)
	}
	name := partition(day)
	return s.runInTx(ctx, func(tx pgx.Tx) error {
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
			// Row security is not forced: the owner can copy into the partition, other roles see no rows of it.
			if _, err := tx.Exec(ctx, `create table `+name+` (like agent_run_events including all);
				alter table `+name+` enable row level security`); err != nil {
				return err
			}
		}
		if !exists && lz4 { // a server may be built without it
			if _, err := tx.Exec(ctx, `alter table `+name+
				` alter line set compression lz4, alter payload set compression lz4`); err != nil {
				return err
			}
		}
		if leaving { // a process began to detach it and perhaps died: no row could be stored
			// While this waits no other partition can be created.
			if _, err := tx.Exec(ctx, `set local lock_timeout = 2000; alter table agent_run_events detach partition `+
				name+` finalize`); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, fmt.Sprintf(`alter table agent_run_events attach partition %s for values from ('%s') to ('%s')`,
			name, from.Format(time.DateOnly), from.AddDate(0, 0, 1).Format(time.DateOnly)))
		return err
	})
}

// forgetDays is called when a row found no partition: another process has dropped it.
func (s *Store) forgetDays() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.days)
}

// dayLayout is schema.Head.Day.
const dayLayout = "20060102"

// dataError reports whether the error is about the data (SQLSTATE classes 22 and 23) or its size and nesting (54), so
// that it would occur again.
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
	uniqueViolation = "23505" // SQLSTATE of a key that exists already
	undefinedTable  = "42P01" // SQLSTATE of a table that does not exist, or is not a partition
)

// noPartition reports whether a row found no partition for its day, or COPY found no table. PostgreSQL reports the
// former as a check violation of the partitioned table, without the name of a constraint.
func noPartition(err error) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return false
	}
	return pe.Code == undefinedTable || pe.Code == "23514" && pe.TableName == "agent_run_events" && pe.ConstraintName == ""
}
