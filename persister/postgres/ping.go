package postgres

import (
	"context"
	"fmt"

	"agentstream/persister/postgres/tables"
)

// Ping returns nil when the database can be reached, its encoding is UTF-8, and its tables have a version with which
// this program works. The error wraps ErrOlder or ErrNewer when the version is the reason. The first success logs a
// warning when row security is not in force.
func (s *Store) Ping(ctx context.Context) error {
	var migrated, secured bool
	var encoding, role string
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("postgres: ping: %w", err)
	}
	err = conn.QueryRow(ctx, `select to_regclass('agent_dead_letters') is not null and to_regclass($1) is not null,
		current_setting('server_encoding'), r.rolname, not (r.rolsuper or r.rolbypassrls)
		from pg_roles r where r.rolname = current_user`, tables.VersionTable).Scan(&migrated, &encoding, &role, &secured)
	conn.Release()
	switch {
	case err != nil:
		return fmt.Errorf("postgres: ping: %w", err)
	case !migrated:
		return fmt.Errorf("postgres: ping: the tables are missing: %w", tables.ErrOlder)
	case encoding != "UTF8":
		return fmt.Errorf("postgres: ping: the database's encoding is %s, UTF8 is needed", encoding)
	}
	if err := s.CheckVersion(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	warned := s.warned
	s.warned = true
	s.mu.Unlock()
	if !secured && !warned {
		s.log.Warn("postgres: row security is not in force for this role: it is a superuser or has BYPASSRLS; use one that is neither", "role", role)
	}
	return nil
}

// CheckVersion returns nil when the tables have a version with which this program works. It costs less than Ping. The
// error wraps ErrOlder or ErrNewer when the version is the reason.
func (s *Store) CheckVersion(ctx context.Context) error {
	if err := tables.CheckVersion(ctx, s.pool); err != nil {
		return fmt.Errorf("postgres: ping: %w", err)
	}
	return nil
}
