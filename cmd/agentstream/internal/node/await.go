package node

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/process"
	"agentstream/edge"
	"agentstream/internal/natskit"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
)

// Bounds of a wait for migrate.
const (
	awaitLook = 5 * time.Second        // for one look at the log
	AwaitRest = 500 * time.Millisecond // between two
	awaitSay  = 10 * time.Second       // between two lines of the log
)

// canMigrate reports whether migrate, or servers that find each other, will mend the error.
func canMigrate(err error) bool {
	return errors.Is(err, natskit.ErrNotDeclared) || natskit.Passing(err) || errors.Is(err, tables.ErrOlder)
}

// OpenLog waits for what migrate makes, and opens PostgreSQL for a role that runs on; dsn "": none. The pool's size
// is that of conns by the number of partitions. It returns nothing when ctx ends.
func (f *ListenFlags) OpenLog(ctx context.Context, js jetstream.JetStream, dsn string, conns func(partitions int) int, m *process.Metrics, log *slog.Logger) (l natskit.Layout, store *postgres.Store, err error) {
	err = f.awaitMigrate(ctx, func(ctx context.Context) (err error) {
		once, cancel := context.WithTimeout(ctx, awaitLook)
		defer cancel()
		if l, err = natskit.Whole(once, js); err == nil && dsn != "" {
			store, err = OpenServed(ctx, dsn, conns(l.Partitions), log)
		}
		return err
	}, m, log)
	return l, store, err
}

// awaitMigrate waits until everything is there that migrate makes, whichever is started first. Meanwhile the
// process is alive and not ready, reports so at --admin-listen, and logs what is missing. It returns nil when
// ctx ends.
func (f *ListenFlags) awaitMigrate(ctx context.Context, there func(context.Context) error, m *process.Metrics, log *slog.Logger) error {
	err := there(ctx)
	if err == nil || !canMigrate(err) {
		return err
	}
	var missing atomic.Pointer[error]
	missing.Store(&err)
	check := edge.Check{Name: "migrate", Run: func(context.Context) error { return *missing.Load() }}
	var logged time.Time
	stages := [][]process.Part{{{Name: "start", Run: func(ctx context.Context) error {
		for {
			if time.Since(logged) >= awaitSay {
				logged = time.Now()
				log.Warn("start: waiting for what agentstream migrate makes", "missing", *missing.Load())
			}
			select {
			case <-time.After(AwaitRest):
			case <-ctx.Done():
				return nil
			}
			err := there(ctx)
			if err == nil || !canMigrate(err) {
				return err
			}
			missing.Store(&err)
		}
	}}}}
	ports, err := (&ListenFlags{AdminListen: f.AdminListen, AdminFlags: f.AdminFlags}).Bind(ctx, "")
	if err != nil {
		return err
	}
	defer ports.Close()
	ports.AddAdmin(stages, &process.Admin{Metrics: m, Log: log, Checks: []edge.Check{check}})
	if err := process.RunStages(ctx, stages...); err != nil || ctx.Err() != nil {
		return err
	}
	log.Info("start: everything is there")
	return nil
}
