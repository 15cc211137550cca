package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"modernc.org/sqlite" // also registers the database/sql driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"agentstream/internal/fair"
	"agentstream/persister"
	"agentstream/persister/sqlstore"
)

// Config configures a Store. Path must be set.
type Config struct {
	Path    string // file; its folder must exist
	Readers int    // number of connections that read; default 4
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

// Store is a persister.Store in one SQLite file. Create it with Open and close it with Close.
type Store struct {
	sqlstore.Store // reads and changes that all SQL stores have in common

	write *sql.DB // one connection
	read  *sql.DB

	readers *fair.Slots // of read, for one tenant

	seen seenRuns // of the transactions of write

	mu         sync.Mutex
	statements [statementCount]*sql.Stmt // of the writer; filled by prepare and not changed afterwards
}

var _ persister.Store = (*Store)(nil)

// Open opens a file that Migrate has created.
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
	s := &Store{write: write, read: read, readers: sqlstore.Connections(cfg.Readers)}
	s.Store = sqlstore.New(database{s}, s, dialect)
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openWriter returns the connection that writes. It locks the file for writing when a transaction begins: a
// transaction that reads first and then writes could not wait for another writer and would fail at once. FULL syncs
// the log at each commit, which costs little for batches. Hundreds of runs grow at as many places of an index. So
// their pages stay in memory, and the log is merged into the file only when each page has been written several times.
// The pages that a statement copies stay in memory too, not in a file. A page has 8 KiB in files that are made now:
// fewer of them are written, and not more bytes. The driver sorts what is a _pragma, and a file that is made in WAL
// mode has its page size already.
func openWriter(path string) (*sql.DB, error) {
	if err := closeToOthers(path); err != nil {
		return nil, fmt.Errorf("sqlite: open: %w", err)
	}
	db, err := openDB(path, "page_size(8192)", "_journal_mode=WAL", "synchronous(FULL)", "busy_timeout(5000)",
		"cache_size(-16000)", "wal_autocheckpoint(4000)", "temp_store(memory)", "_txlock=immediate")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// closeToOthers makes the file where it is missing, readable by its owner alone: SQLite would leave that to the umask,
// and gives what it keeps beside the file the same mode. A file that everybody may read has its mode from such an
// umask, and is closed with what lies beside it. One that a group alone may read was opened to it on purpose.
func closeToOthers(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, ownerOnly)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	for _, name := range []string{path, path + "-wal", path + "-shm", path + "-journal"} {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.Mode().Perm()&others != 0 {
			err = os.Chmod(name, ownerOnly)
		}
		if err != nil && !errors.Is(err, fs.ErrPermission) { // its owner decides
			return err
		}
	}
	return nil
}

// Modes of files.
const (
	ownerOnly fs.FileMode = 0o600
	others    fs.FileMode = 0o007
)

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

// Close closes the store. The log file is merged into the database when no other process has it open.
func (s *Store) Close() error {
	return errors.Join(s.closeStatements(), s.read.Close(), s.write.Close())
}

// dataError reports whether the error is about the data, so that it would occur again.
func dataError(err error) bool {
	return isCode(err, sqlite3.SQLITE_TOOBIG) || isCode(err, sqlite3.SQLITE_CONSTRAINT) ||
		isCode(err, sqlite3.SQLITE_MISMATCH)
}

// isCode compares the primary result code, the low byte of an extended one.
func isCode(err error, code int) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && se.Code()&0xff == code
}
