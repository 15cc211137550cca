package persistertest

import (
	"context"
	"iter"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// SuiteStore is what the suite tests: the persister's store and the reads of the archive. A store also
// implements Tables and Catalog.
type SuiteStore interface {
	persister.Store
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
	DeadLetters(ctx context.Context, limit int) ([]persister.DeadLetter, error)
}

// Tables stores events without an offset. Every store implements it.
type Tables interface {
	Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error)
	PutDeadLetters(ctx context.Context, deadLetters []persister.DeadLetter) error
	Ping(ctx context.Context) error
}

// Catalog lists runs, root runs of children, tenants, and changed runs. Every store implements it.
type Catalog interface {
	Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error)
	Parent(ctx context.Context, tenant, child string) (run string, err error)
	NextTenant(ctx context.Context, after string) (string, error)
	RunsChangedSince(ctx context.Context, t time.Time) iter.Seq2[schema.RunKey, error]
}

func tablesOf(t testing.TB, s SuiteStore) Tables {
	t.Helper()
	tables, ok := s.(Tables)
	if !ok {
		t.Fatalf("%T does not append", s)
	}
	return tables
}
