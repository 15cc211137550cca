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
	Lanes   map[string]schema.Lane // the highest epoch of each; the root's only with an owner, children's all
	First   schema.Seq             // first event of the batch
	FirstTS time.Time              // its time
	LastTS  time.Time              // time of the newest event
	Rows    int
	Digest  Digest
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
	b.digest()
	return b
}

// digest fills the runs' digests. Of rows with one key only the first can be stored; it decides.
func (b *Batch) digest() {
	run := 0
	for i := range b.Rows {
		row := &b.Rows[i]
		if row.Type != schema.TypeMessageEnd && row.Type != schema.TypeRunLifecycle {
			continue
		}
		if i > 0 && b.Rows[i-1].Seq == row.Seq && b.Rows[i-1].Chunk.Key == row.Chunk.Key {
			continue
		}
		for b.Runs[run].Key != row.Chunk.Key { // both are in the order of keys
			run++
		}
		b.Runs[run].Digest.Add(row.Seq, row.Type, row.Chunk.Child, row.Payload)
	}
}

func (r *Run) add(c *Chunk) {
	if len(c.Rows) == 0 {
		return
	}
	for i := range c.Rows {
		row := &c.Rows[i]
		if r.First == 0 || row.Seq < r.First {
			r.First, r.FirstTS = row.Seq, row.TS
		}
	}
	if c.Head.Last > r.Head.Last {
		r.Head = c.Head
		r.LastTS = c.Rows[len(c.Rows)-1].TS
	}
	l := c.Head.Lane
	if have, ok := r.Lanes[c.Child]; !ok && (l.Owner != "" || c.Child != "") || ok && l.Owner != "" && (have.Owner == "" || l.Epoch > have.Epoch) {
		r.Lanes[c.Child] = l
	}
	r.Rows += len(c.Rows)
}

func compareKeys(x, y schema.RunKey) int {
	return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.Run, y.Run))
}
