package tables

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// VersionTable is the table that records which migrations have run.
const VersionTable = "agentstream_migrations"

// ErrOlder reports that the tables are missing or of an older version than this program: migrate must run.
var ErrOlder = errors.New("run migrate")

// ErrNewer reports that the tables were made by a newer version of the product than this one, and are for that version
// alone.
var ErrNewer = errors.New("the tables are of a newer version")

// Querier runs a query for one row. Connections, pools and transactions of pgx implement it.
type Querier interface {
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}

// CheckVersion returns nil when the tables have the version of this program, or a newer one beside which it works. The
// error wraps ErrOlder or ErrNewer when the version is the reason.
func CheckVersion(ctx context.Context, db Querier) error {
	var have int64
	if err := db.QueryRow(ctx, selectVersion).Scan(&have); err != nil {
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
	if err := db.QueryRow(ctx, selectReadableFrom).Scan(&from); err != nil {
		return err
	}
	if want < from {
		return fmt.Errorf("%w: they are at %d and for programs from %d on, this one knows up to %d", ErrNewer, have,
			from, want)
	}
	return nil
}

// selectReadableFrom returns the version of the oldest programs that work beside the newest migration.
const selectReadableFrom = `select agent_readable_from()`

// Version returns the version of the tables that this program was written for.
func Version() int64 { return known.Newest() }

const selectVersion = `select coalesce(max(version_id), 0) from ` + VersionTable + ` where is_applied`

// versionOf reads the version table itself, because the provider would create it. Without one it returns 0.
func versionOf(ctx context.Context, db *sql.DB) (have int64, err error) {
	var exists bool
	err = db.QueryRowContext(ctx, `select to_regclass($1) is not null`, VersionTable).Scan(&exists)
	if err == nil && exists {
		err = db.QueryRowContext(ctx, selectVersion).Scan(&have)
	}
	return have, err
}
