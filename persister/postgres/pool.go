package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// How long a connection that is refused for its password is tried again, and how often. A password is replaced at the
// server and in a file, one after the other; between the two no connection can be made, and nothing is to fail.
const (
	passwordWait  = 10 * time.Second
	passwordRetry = 200 * time.Millisecond
)

// pool is a pool whose connections wait for their password. Its other methods, which make connections of their own, do
// not.
type pool struct{ *pgxpool.Pool }

// Acquire returns a connection; the caller releases it.
func (p pool) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	for end := time.Now().Add(passwordWait); ; {
		conn, err := p.Pool.Acquire(ctx)
		if !badPassword(err) || time.Now().After(end) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err // it has more to say than ctx
		case <-time.After(passwordRetry):
		}
	}
}

// with runs fn with a connection.
func (p pool) with(ctx context.Context, fn func(*pgxpool.Conn) error) error {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return fn(conn)
}

// badPassword reports whether the server has refused a password.
func badPassword(err error) bool {
	refused := new(pgconn.PgError)
	return errors.As(err, &refused) && refused.Code == "28P01" // invalid_password
}
