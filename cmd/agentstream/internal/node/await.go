package node

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/cli"
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

// waitsFor returns the name of what is missing, "" where no wait helps.
func waitsFor(err error) string {
	switch {
	case errors.Is(err, natskit.ErrUnreachable):
		return "nats"
	case canMigrate(err):
		return "migrate"
	}
	return ""
}

// Start is how a role comes up beside others that may not be there yet.
type Start struct {
	AdminListen string
	Flags       process.AdminFlags
	Metrics     *process.Metrics
	Log         *slog.Logger
}

// Dial connects as each of the roles, and waits for a NATS that is not there yet. It returns none when ctx ends.
func (s *Start) Dial(ctx context.Context, f *cli.NATSFlags, roles ...string) (conns []*nats.Conn, err error) {
	err = s.Await(ctx, func(context.Context) error {
		for len(conns) < len(roles) {
			nc, err := f.Dial(roles[len(conns)], s.Log)
			if err != nil {
				return err
			}
			conns = append(conns, nc)
		}
		return nil
	})
	if err == nil && len(conns) == len(roles) {
		return conns, nil
	}
	for _, nc := range conns {
		nc.Close()
	}
	return nil, err
}

// OpenLog waits for what migrate makes, and opens PostgreSQL for a role that runs on; dsn "": none. The pool's size
// is that of conns by the number of partitions. It returns nothing when ctx ends.
func (s *Start) OpenLog(ctx context.Context, js jetstream.JetStream, dsn string,
	conns func(partitions int) int) (l natskit.Layout, store *postgres.Store, err error) {
	err = s.Await(ctx, func(ctx context.Context) (err error) {
		once, cancel := context.WithTimeout(ctx, awaitLook)
		defer cancel()
		if l, err = natskit.Whole(once, js); err == nil && dsn != "" {
			store, err = OpenServed(ctx, dsn, conns(l.Partitions), s.Log)
		}
		return err
	})
	return l, store, err
}

// Await waits until what the role stands on is there, whichever is started first: NATS, and what migrate makes.
// Meanwhile the process is alive and not ready, reports so to operators and probes, and logs what is missing. It
// returns nil when ctx ends.
func (s *Start) Await(ctx context.Context, there func(context.Context) error) error {
	err := there(ctx)
	if err == nil || waitsFor(err) == "" {
		return err
	}
	var missing atomic.Pointer[error]
	missing.Store(&err)
	why := func(name string) edge.Check {
		return edge.Check{Name: name, Run: func(context.Context) error {
			if err := *missing.Load(); waitsFor(err) == name {
				return err
			}
			return nil
		}}
	}
	wait := func(ctx context.Context) error { return s.wait(ctx, there, &missing) }
	stages := [][]process.Part{{{Name: "start", Run: wait}}}
	ports, err := process.OpenOperators(ctx, s.AdminListen, s.Flags, s.Metrics, s.Log)
	if err != nil {
		return err
	}
	defer ports.Close()
	operators := &process.Admin{Metrics: s.Metrics, Log: s.Log, Checks: []edge.Check{why("nats"), why("migrate")}}
	stages = append(stages, ports.Parts(operators))
	if err := process.RunStages(ctx, stages...); err != nil || ctx.Err() != nil {
		return err
	}
	s.Log.Info("start: everything is there")
	return nil
}

// wait looks again and again, and keeps what is missing.
func (s *Start) wait(ctx context.Context, there func(context.Context) error, missing *atomic.Pointer[error]) error {
	var logged time.Time
	for {
		if time.Since(logged) >= awaitSay {
			logged = time.Now()
			err := *missing.Load()
			s.Log.Warn("start: waiting for what the role stands on", "check", waitsFor(err), "missing", err)
		}
		select {
		case <-time.After(AwaitRest):
		case <-ctx.Done():
			return nil
		}
		err := there(ctx)
		if err == nil || waitsFor(err) == "" {
			return err
		}
		missing.Store(&err)
	}
}
