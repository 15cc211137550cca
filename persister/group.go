package persister

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"agentstream/schema"
)

// Run is what a batch says about one run: what a store's row of the run is moved by.
type Run struct {
	Key     schema.RunKey
	Head    schema.Head            // the newest of the batch
	Lanes   map[string]schema.Lane // lanes with an owner; the highest epoch of each
	FirstTS time.Time              // earliest time of the batch's events
	LastTS  time.Time              // time of the newest event
	Rows    int
}

// Batch is an append, ordered for a transaction. All stores write runs and rows in the order given
// here, so that transactions of several persisters never wait for each other in a circle.
type Batch struct {
	Runs      []Run
	Rows      []BatchRow
	Conflicts []Conflict // rows of chunks whose day is not their run's
}

// BatchRow is a row with its place in the chunks that were handed in.
type BatchRow struct {
	Row
	Chunk *Chunk
	At    Conflict
}

// Arrange orders chunks for a transaction. days holds the day of runs where the store knows it; for
// others the first chunk decides. A chunk with another day than its run's is a conflict: the day is
// part of the key, and with two of them one seq could be stored twice.
func Arrange(chunks []Chunk, days map[schema.RunKey]string) Batch {
	var b Batch
	runs := make(map[schema.RunKey]*Run)
	for i := range chunks {
		c := &chunks[i]
		r := runs[c.Key]
		if r == nil {
			r = &Run{Key: c.Key, Head: schema.Head{Day: cmp.Or(days[c.Key], c.Head.Day)}, Lanes: make(map[string]schema.Lane)}
			runs[c.Key] = r
		}
		if c.Head.Day != r.Head.Day {
			for row := range c.Rows {
				b.Conflicts = append(b.Conflicts, Conflict{i, row})
			}
			continue
		}
		r.add(c)
		for row := range c.Rows {
			b.Rows = append(b.Rows, BatchRow{c.Rows[row], c, Conflict{i, row}})
		}
	}
	maps.DeleteFunc(runs, func(_ schema.RunKey, r *Run) bool { return r.Rows == 0 })
	for _, r := range runs {
		b.Runs = append(b.Runs, *r)
	}
	slices.SortFunc(b.Runs, func(x, y Run) int { return compareKeys(x.Key, y.Key) })
	slices.SortStableFunc(b.Rows, func(x, y BatchRow) int {
		return cmp.Or(compareKeys(x.Chunk.Key, y.Chunk.Key), cmp.Compare(x.Seq, y.Seq))
	})
	return b
}

func (r *Run) add(c *Chunk) {
	if len(c.Rows) == 0 {
		return
	}
	for i := range c.Rows {
		if ts := c.Rows[i].TS; r.Rows == 0 && i == 0 || ts.Before(r.FirstTS) {
			r.FirstTS = ts
		}
	}
	if c.Head.Last > r.Head.Last {
		r.Head = c.Head
		r.LastTS = c.Rows[len(c.Rows)-1].TS
	}
	if l := c.Head.Lane; l.Owner != "" && (r.Lanes[c.Child].Owner == "" || l.Epoch > r.Lanes[c.Child].Epoch) {
		r.Lanes[c.Child] = l
	}
	r.Rows += len(c.Rows)
}

func compareKeys(x, y schema.RunKey) int {
	return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.Run, y.Run))
}
