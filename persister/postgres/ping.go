package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// ErrOlder reports that the tables are missing or of an older version than this program: migrate must run.
var ErrOlder = errors.New("run migrate")

// Ping reports whether the database answers, holds the tables in the version of this program or in a newer one beside
// which it works, and keeps text as UTF-8. The error wraps ErrOlder or ErrNewer where that is what is wrong. The first success logs a
// warning when row security is not in force.
func (s *Store) Ping(ctx context.Context) error {
	var tables, secured bool
	var encoding, role string
	err := s.pool.QueryRow(ctx, `select to_regclass('agent_dead_letters') is not null and to_regclass($1) is not null,
		current_setting('server_encoding'), r.rolname, not (r.rolsuper or r.rolbypassrls)
		from pg_roles r where r.rolname = current_user`, versionTable).Scan(&tables, &encoding, &role, &secured)
	switch {
	case err != nil:
		return fmt.Errorf("postgres: ping: %w", err)
	case !tables:
		return fmt.Errorf("postgres: ping: the tables are missing: %w", ErrOlder)
	case encoding != "UTF8":
		return fmt.Errorf("postgres: ping: the database's encoding is %s, UTF8 is needed", encoding)
	}
	if err := s.pingVersion(ctx); err != nil {
		return fmt.Errorf("postgres: ping: %w", err)
	}
	s.mu.Lock()
	told := s.told
	s.told = true
	s.mu.Unlock()
	if !secured && !told {
		s.log.Warn("postgres: row security is not in force for this role: it is a superuser or has BYPASSRLS; use one that is neither", "role", role)
	}
	return nil
}

func (s *Store) pingVersion(ctx context.Context) error {
	var have int64
	if err := s.pool.QueryRow(ctx, selectVersion).Scan(&have); err != nil {
		return err
	}
	want := Version()
	if have < want {
		return fmt.Errorf("the tables are at version %d, this program needs %d: %w", have, want, ErrOlder)
	}
	if have == want {
		return nil
	}
	var from int64
	if err := s.pool.QueryRow(ctx, selectReadableFrom).Scan(&from); err != nil {
		return err
	}
	if want < from {
		return fmt.Errorf("%w: they are at %d and for programs from %d on, this one knows up to %d", ErrNewer, have, from, want)
	}
	return nil
}

// selectReadableFrom asks the newest migration for the oldest programs that work beside it.
const selectReadableFrom = `select agent_readable_from()`

// Version is the version of the tables that this program was written for. It reads newer ones too that say so.
func Version() (newest int64) {
	files, _ := fs.ReadDir(migrations, "migrations") // embedded: it is there
	for _, f := range files {
		number, _, _ := strings.Cut(f.Name(), "_")
		if v, err := strconv.ParseInt(number, 10, 64); err == nil {
			newest = max(newest, v)
		}
	}
	for v := range goMigrations {
		newest = max(newest, v)
	}
	return newest
}
