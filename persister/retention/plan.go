package retention

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Survey returns what a store has to remove.
type Survey interface {
	ListEnded(ctx context.Context, q persister.EndedQuery) ([]persister.EndedRun, error)
	Overrides(ctx context.Context) (map[string]persister.Override, error)
	Weigh(ctx context.Context, runs []persister.EndedRun) (rows, bytes int64, err error)
	LiveRuns(ctx context.Context, day string) (runs int, partition bool, err error)
}

// Planned is what a pass would do with the runs of one tenant in one state.
type Planned struct {
	Tenant string          `json:"tenant"`
	State  schema.RunState `json:"state"`
	// "expire", "delete": the session was deleted, or "cool": the rows are removed, the blob stays
	What  string   `json:"what"`
	Runs  int      `json:"runs"`
	Rows  int64    `json:"rows"`
	Bytes int64    `json:"row_bytes"` // of the rows' lines
	Blobs int      `json:"blobs"`
	Blob  int64    `json:"blob_bytes"`
	IDs   []string `json:"run_ids,omitempty"`
}

// Plan is what a pass would do now.
type Plan struct {
	At     time.Time `json:"at"`
	Groups []Planned `json:"groups"`
	Days   []string  `json:"partitions"` // days whose partitions would be dropped
}

// MakePlan finds everything that is due. It changes nothing. withRuns adds the ids of the runs.
func MakePlan(ctx context.Context, store Survey, policy Policy, now time.Time, withRuns bool) (Plan, error) {
	p := planner{store: store, withRuns: withRuns, groups: make(map[planKey]*Planned), days: make(map[string]int),
		seen: make(map[schema.RunKey]bool)}
	overrides, err := store.Overrides(ctx)
	if err == nil {
		d := due{policy: policy.withDefaults(), overrides: overrides, now: now}
		err = d.eachUnwanted(ctx, store, func(runs []persister.EndedRun) error { return p.add(ctx, "delete", runs) })
		if err == nil {
			_, err = d.eachExpired(ctx, store, nil, func(runs []persister.EndedRun) error { return p.add(ctx, "expire", runs) })
		}
		if err == nil {
			err = d.cold(ctx, store, func(runs []persister.EndedRun) error { return p.add(ctx, "cool", runs) })
		}
	}
	out := Plan{At: now, Groups: []Planned{}, Days: []string{}}
	for _, day := range slices.Sorted(maps.Keys(p.days)) {
		if err != nil {
			break
		}
		var live int
		var partition bool
		if live, partition, err = store.LiveRuns(ctx, day); err == nil && partition && live <= p.days[day] {
			out.Days = append(out.Days, day)
		}
	}
	if err != nil {
		return Plan{}, fmt.Errorf("retention: plan: %w", err)
	}
	for _, g := range p.groups {
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b Planned) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.State, b.State), cmp.Compare(a.What, b.What))
	})
	return out, nil
}

// planKey is what the counts of a plan are grouped by.
type planKey struct {
	tenant, what string
	state        schema.RunState
}

type planner struct {
	store    Survey
	withRuns bool
	groups   map[planKey]*Planned
	days     map[string]int // runs that would lose rows
	seen     map[schema.RunKey]bool
}

func (p *planner) add(ctx context.Context, what string, runs []persister.EndedRun) error {
	of := make(map[*Planned][]persister.EndedRun)
	for _, r := range runs {
		if p.seen[r.Key] { // deleted runs are not expired as well, and expired ones not cooled
			continue
		}
		p.seen[r.Key] = true
		key := planKey{r.Key.Tenant, what, r.State}
		g := p.groups[key]
		if g == nil {
			g = &Planned{Tenant: key.tenant, State: key.state, What: what}
			p.groups[key] = g
		}
		g.Runs++
		if what != "cool" && r.Place.URI != "" {
			g.Blobs++
			g.Blob += r.Bytes
		}
		if p.withRuns {
			g.IDs = append(g.IDs, r.Key.Run)
		}
		if r.Place.Last > r.Place.Floor {
			p.days[r.Place.Day]++
		}
		of[g] = append(of[g], r)
	}
	for g, runs := range of {
		rows, bytes, err := p.store.Weigh(ctx, runs)
		if err != nil {
			return err
		}
		g.Rows, g.Bytes = g.Rows+rows, g.Bytes+bytes
	}
	return nil
}
