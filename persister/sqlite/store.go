package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite" // also registers the database/sql driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"agentstream/persister"
)

// Config says where the database is. Path must be set.
type Config struct {
	Path    string // file; its folder must exist
	Readers int    // connections that read; default 4
}

func (c Config) withDefaults() Config {
	if c.Readers == 0 {
		c.Readers = 4
	}
	return c
}

func (c Config) validate() error {
	if c.Path == "" {
		return errors.New("sqlite: config needs a path")
	}
	if c.Readers < 0 {
		return errors.New("sqlite: config has a negative number of readers")
	}
	return nil
}

// Store is a persister.Store in one SQLite file. Make it with Open, end it with Close.
type Store struct {
	write *sql.DB // one connection
	read  *sql.DB

	mu         sync.Mutex
	statements [statementCount]*sql.Stmt // the writer's; filled by prepare and not changed then
}

var _ persister.Store = (*Store)(nil)

// Open opens the file, which Migrate has prepared.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	write, err := openWriter(cfg.Path)
	if err != nil {
		return nil, err
	}
	read, err := openDB(cfg.Path, "busy_timeout(5000)", "query_only(1)")
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	read.SetMaxOpenConns(cfg.Readers)
	read.SetMaxIdleConns(cfg.Readers)
	s := &Store{write: write, read: read}
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openWriter takes the write lock when a transaction begins: one that reads first and then writes
// cannot wait for another writer and would fail at once. FULL syncs the log at each commit; in
// batches that costs next to nothing. Hundreds of runs grow at as many places of a table: their pages
// stay in memory, and the log is merged into the file only when each has been written to it several
// times. So do the pages that a statement copies aside; they would go to a file.
func openWriter(path string) (*sql.DB, error) {
	db, err := openDB(path, "journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(5000)",
		"cache_size(-16000)", "wal_autocheckpoint(4000)", "temp_store(memory)", "_txlock=immediate")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func openDB(path string, pragmas ...string) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open: %w", err)
	}
	q := make(url.Values)
	for _, p := range pragmas {
		if name, v, ok := strings.Cut(p, "="); ok {
			q.Add(name, v)
			continue
		}
		q.Add("_pragma", p)
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(abs), RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %s: %w", path, err)
	}
	return db, nil
}

// Close ends the store. The log file is merged into the database when nobody else has it open.
func (s *Store) Close() error {
	return errors.Join(s.closeStatements(), s.read.Close(), s.write.Close())
}

// Ping says whether the file can be read and holds the tables.
func (s *Store) Ping(ctx context.Context) error {
	var tables int
	err := s.read.QueryRowContext(ctx, `select count(*) from sqlite_schema where name = 'agent_dead_letters'`).Scan(&tables)
	switch {
	case err != nil:
		return fmt.Errorf("sqlite: ping: %w", err)
	case tables == 0:
		return errors.New("sqlite: ping: the tables are missing: run migrate")
	}
	return nil
}

//go:embed migrations/*.sql
var migrations embed.FS

// versionTable records which migrations have run.
const versionTable = "agentstream_migrations"

// Migrate brings the tables of the file up to date, creating the file when it is not there, and
// gives the names of the migrations it ran. With dryRun it only gives the names and changes nothing.
func Migrate(ctx context.Context, path string, dryRun bool) ([]string, error) {
	if path == "" {
		return nil, errors.New("sqlite: migrate: no path")
	}
	open := openWriter
	if dryRun {
		open = func(path string) (*sql.DB, error) {
			return openDB(path, "busy_timeout(5000)", "query_only(1)", "mode=ro")
		}
	}
	db, err := open(path)
	if err != nil {
		return nil, err
	}
	names, err := migrate(ctx, db, dryRun)
	if err = errors.Join(err, db.Close()); err != nil {
		return names, fmt.Errorf("sqlite: migrate: %w", err)
	}
	return names, nil
}

func migrate(ctx context.Context, db *sql.DB, dryRun bool) ([]string, error) {
	provider, err := newProvider(db)
	if err != nil {
		return nil, err
	}
	if dryRun {
		return pending(ctx, db, provider)
	}
	var results []*goose.MigrationResult
	// Another process may have been first: then its work is found at the second look.
	for range 3 {
		if results, err = provider.Up(ctx); err == nil {
			break
		}
	}
	names := make([]string, 0, len(results))
	for _, r := range results {
		names = append(names, nameOf(r.Source))
	}
	return names, err
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithGoMigrations(digestMigration()))
}

// nameOf names a migration; those that are no file have no path.
func nameOf(s *goose.Source) string {
	if s.Path != "" {
		return s.Path
	}
	return fmt.Sprintf("%05d_%s", s.Version, goMigrations[s.Version])
}

// pending reads the version table itself, because the provider would create it.
func pending(ctx context.Context, db *sql.DB, provider *goose.Provider) ([]string, error) {
	var version int64
	err := db.QueryRowContext(ctx, `select coalesce(max(version_id), 0) from `+versionTable).Scan(&version)
	if err != nil && !strings.Contains(err.Error(), "no such table") && !isCode(err, sqlite3.SQLITE_CANTOPEN) {
		return nil, err
	}
	var names []string
	for _, s := range provider.ListSources() {
		if s.Version > version {
			names = append(names, nameOf(s))
		}
	}
	return names, nil
}

// dataError says that the error is about the data and will be the same next time.
func dataError(err error) bool {
	return isCode(err, sqlite3.SQLITE_TOOBIG) || isCode(err, sqlite3.SQLITE_CONSTRAINT) ||
		isCode(err, sqlite3.SQLITE_MISMATCH)
}

// isCode compares the primary result code, the low byte of an extended one.
func isCode(err error, code int) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && se.Code()&0xff == code
}
