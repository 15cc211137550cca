package postgres

import (
	"agentstream/persister"
	"agentstream/schema"
)

// sums adds what a batch reports, without what is old, to what is stored: the columns of updateUsage, nil when
// nothing grows.
func sums(b *persister.Batch, stored map[schema.RunKey]storedRun, old map[schema.RunKey]map[schema.Seq]bool) []any {
	var tenant, run, usage []string
	for i := range b.Runs {
		r := &b.Runs[i]
		if sum := r.Digest.Sum(old[r.Key]); len(sum) > 0 {
			tenant, run = append(tenant, r.Key.Tenant), append(run, r.Key.Run)
			usage = append(usage, schema.ParseUsage(stored[r.Key].usage).Plus(sum).String())
		}
	}
	if tenant == nil {
		return nil
	}
	return []any{tenant, run, usage}
}
