package node

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"agentstream/cmd/agentstream/internal/process"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/producers/reaper"
	"agentstream/protocols/nimi"
	nimianswer "agentstream/protocols/nimi/answer"
	"agentstream/protocols/otlp"
	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/seal"
)

// ReapFlags say when runs whose writer is gone are ended.
type ReapFlags struct {
	ReapAfter        time.Duration `help:"Silence after which a run's writer is asked whether it is there; when nobody answers, the run is ended (state error). 0: never." default:"5m" env:"AGENTSTREAM_REAP_AFTER"`
	ReapUnownedAfter time.Duration `help:"Silence after which a run is ended whose writers cannot be asked, because they publish over HTTP. 0: never." default:"24h" env:"AGENTSTREAM_REAP_UNOWNED_AFTER"`
}

// never is what a component takes for off, where zero means its default.
const never = -1

// orNever returns never for a time that switches a component off.
func orNever(d time.Duration) time.Duration {
	if d <= 0 {
		return never
	}
	return d
}

// Reaper returns the part that ends runs, and settles traces that other nodes have left. Where the flags switch the
// ending off, it does the second alone. old and runs are one store.
func (f ReapFlags) Reaper(log *pubjs.Log, old Archive, runs tenantsRuns, rules *redact.File, keys *seal.Keys,
	m *process.Metrics, logger *slog.Logger) ([]process.Part, error) {
	after, unowned := orNever(f.ReapAfter), orNever(f.ReapUnownedAfter)
	quiet := quietRuns{store: runs, traces: after == never && unowned == never}
	every := time.Minute
	for _, d := range []time.Duration{after, unowned} {
		if d > 0 {
			every = min(every, d) // short ones are for trying it out
		}
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log, Archive: old, Redact: rules, Seal: keys,
		Logger: logger})
	if err != nil {
		return nil, err
	}
	past := OpenArchive(keys, old)
	settler := otlp.NewSettler(otlp.SettlerConfig{Log: log, Past: past, Appender: app, Settle: 2 * maxSettle})
	r, err := reaper.New(reaper.Config{
		Log: log, Witness: log, Lister: quiet, Archive: old, Past: past, Redact: rules, Seal: keys,
		After: after, Unowned: unowned, Every: every, Grace: min(15*time.Second, every), Logger: logger,
		Hooks: m.ReaperHooks(), Feeds: nimi.Feeds(), Reasons: nimianswer.Reasons(), Finish: finishTraces(settler),
	})
	if err != nil {
		return nil, err
	}
	return []process.Part{{Name: "reaper", Run: r.Run}}, nil
}

// finishTraces returns a function that settles the traces that came to a node which is gone. It waits longer than nodes
// wait themselves.
func finishTraces(s *otlp.Settler) func(context.Context, schema.RunKey) (bool, time.Time, error) {
	return func(ctx context.Context, key schema.RunKey) (bool, time.Time, error) {
		if !otlp.IsTrace(key.Run) {
			return false, time.Time{}, nil
		}
		next, err := s.Settle(ctx, key)
		if errors.Is(err, otlp.ErrGone) { // it is ended like any other
			return false, next, nil
		}
		return err == nil, next, err
	}
}

// tenantsRuns is a store's list of runs, tenant by tenant.
type tenantsRuns interface {
	NextTenant(ctx context.Context, after string) (string, error)
	Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error)
}

// quietRuns names the open runs of a store from which nothing has come.
type quietRuns struct {
	store  tenantsRuns
	traces bool // those alone whose events came as spans
}

// openStates are those of a run that is not over.
var openStates = []schema.RunState{"", schema.StatePlanning, schema.StateAwaitingApproval, schema.StateRunning,
	schema.StatePaused, schema.StateRedirecting}

// quietPage is how many runs one query asks for.
const quietPage = 500

// Quiet walks all tenants. Times of events are the producers': a run of a producer whose clock is ahead of
// ours is named too.
func (q quietRuns) Quiet(ctx context.Context, before time.Time) iter.Seq2[schema.RunKey, error] {
	return func(yield func(schema.RunKey, error) bool) {
		tenant := ""
		for {
			next, err := q.store.NextTenant(ctx, tenant)
			if err != nil {
				yield(schema.RunKey{}, err)
				return
			}
			if next == "" || !q.of(ctx, next, before, yield) {
				return
			}
			tenant = next
		}
	}
}

// of walks the runs of a tenant. more is false when yield wants no more, or the store has failed.
func (q quietRuns) of(ctx context.Context, tenant string, before time.Time,
	yield func(schema.RunKey, error) bool) (more bool) {
	query := schema.RunsQuery{States: openStates, Limit: quietPage}
	for {
		runs, err := q.store.Runs(ctx, tenant, query)
		if err != nil {
			yield(schema.RunKey{}, err)
			return false
		}
		for i := range runs {
			quiet := runs[i].Updated.Before(before) || runs[i].Updated.After(time.Now())
			quiet = quiet && (!q.traces || otlp.IsTrace(runs[i].ID))
			if quiet && !yield(schema.RunKey{Tenant: tenant, Run: runs[i].ID}, nil) {
				return false
			}
		}
		if len(runs) < quietPage {
			return true
		}
		query.After = runs[len(runs)-1].Cursor()
	}
}
