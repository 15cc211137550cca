package postgres

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestPasswordIsReadAgain: each new connection has the password of now, of the password file that the DSN names, and of
// a DSN that is itself in a file.
func TestPasswordIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pass")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("*:*:*:someone:first\n")
	dsn := "postgres://someone@127.0.0.1:1/x?sslmode=disable&passfile=" + path
	c := Config{DSN: dsn}
	conn, err := pgx.ParseConfig(dsn)
	if err != nil || conn.Password != "first" {
		t.Fatal(conn, err)
	}
	write("*:*:*:someone:second\n")
	if err := c.refresh(conn); err != nil || conn.Password != "second" {
		t.Errorf("%q %v", conn.Password, err)
	}
	c.Fresh = func() string { return "postgres://someone:third@127.0.0.1:1/x?sslmode=disable" }
	if err := c.refresh(conn); err != nil || conn.Password != "third" {
		t.Errorf("%q %v", conn.Password, err)
	}
}
