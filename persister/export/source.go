package export

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"agentstream/schema"
)

// Source reads runs: a store, or a store with its blobs.
type Source interface {
	// Head returns the newest position stored of a run; the zero Head when the tenant has no such run.
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	// Packs iterates over the run's events with after < seq ≤ through in order.
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
	// Runs returns one page of the tenant's runs, newest first.
	Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error)
	// NextTenant returns the first tenant after after that has a run, "" when there is none.
	NextTenant(ctx context.Context, after string) (string, error)
}

// Selection selects runs. Tenant must be set unless AllTenants is.
type Selection struct {
	Tenant     string
	AllTenants bool
	IDs        []string         // these runs of the tenant; empty: all that Query selects
	Query      schema.RunsQuery // States, Since and Until are used
}

// Bounds of the memory for a list of runs.
const (
	pageRuns  = 500
	batchRuns = 50_000
)

// job is one run to export.
type job struct {
	key  schema.RunKey
	info schema.RunInfo // only Last is known of a run that was selected by its id
}

// batches iterates over the selection: at most batchRuns runs of one tenant at a time, ordered by id within a batch.
// last reports that no other batch follows, so that the total is known.
func (s *Selection) batches(ctx context.Context, src Source, infos bool) iter.Seq2[jobBatch, error] {
	return func(yield func(jobBatch, error) bool) {
		tenants := []string{s.Tenant}
		if s.AllTenants {
			tenants = tenants[:0]
			for after := ""; ; {
				next, err := src.NextTenant(ctx, after)
				if err != nil {
					yield(jobBatch{}, err)
					return
				}
				if next == "" {
					break
				}
				tenants, after = append(tenants, next), next
			}
		}
		for i, tenant := range tenants {
			walk := s.searchList(ctx, src, tenant)
			if len(s.IDs) > 0 && !infos {
				walk = s.lookUp(ctx, src, tenant)
			}
			for b, err := range walk {
				b.last = b.last && i == len(tenants)-1
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}

// jobBatch is runs to export, in order.
type jobBatch struct {
	jobs []job
	last bool
}

// searchList iterates over the tenant's list. When runs are named as well, it searches the list for them,
// because only the list has all fields of a run.
func (s *Selection) searchList(ctx context.Context, src Source, tenant string) iter.Seq2[jobBatch, error] {
	return func(yield func(jobBatch, error) bool) {
		q := s.Query
		q.Limit, q.After = pageRuns, schema.RunCursor{}
		want := make(map[string]bool, len(s.IDs))
		for _, id := range s.IDs {
			want[id] = true
		}
		var b jobBatch
		for !b.last {
			page, err := src.Runs(ctx, tenant, q)
			if err != nil {
				yield(jobBatch{}, err)
				return
			}
			b.last = len(page) < pageRuns
			for _, info := range page {
				q.After = info.Cursor()
				if len(s.IDs) > 0 && !want[info.ID] {
					continue
				}
				delete(want, info.ID)
				b.jobs = append(b.jobs, job{schema.RunKey{Tenant: tenant, Run: info.ID}, info})
			}
			b.last = b.last || len(s.IDs) > 0 && len(want) == 0
			if !b.last && len(b.jobs) < batchRuns {
				continue
			}
			slices.SortFunc(b.jobs, func(x, y job) int { return cmp.Compare(x.key.Run, y.key.Run) })
			if !yield(b, nil) {
				return
			}
			b.jobs = nil
		}
		for id := range want {
			yield(jobBatch{}, fmt.Errorf("run %s/%s: %w", tenant, id, ErrNoRun))
			return
		}
	}
}

// lookUp looks up runs by their ids.
func (s *Selection) lookUp(ctx context.Context, src Source, tenant string) iter.Seq2[jobBatch, error] {
	return func(yield func(jobBatch, error) bool) {
		b := jobBatch{last: true}
		for _, id := range slices.Compact(slices.Sorted(slices.Values(s.IDs))) {
			key := schema.RunKey{Tenant: tenant, Run: id}
			head, err := src.Head(ctx, key, "")
			if err == nil && !head.HasEvents() {
				err = fmt.Errorf("run %s: %w", key, ErrNoRun)
			}
			if err != nil {
				yield(jobBatch{}, err)
				return
			}
			b.jobs = append(b.jobs, job{key, schema.RunInfo{ID: id, Last: head.Last, State: head.State}})
		}
		yield(b, nil)
	}
}
