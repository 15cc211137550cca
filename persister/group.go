package persister

import (
	"cmp"
	"slices"
	"time"

	"agentstream/schema"
)

// Run is the summary of a batch for one run. A store updates its row of the run from it.
type Run struct {
	Key  schema.RunKey
	Head schema.Head // the newest of the batch
	// with the highest epoch of each: the root's if it has an owner, all of children; nil when there are none
	Lanes   map[string]schema.Lane
	First   schema.Seq // first event of the batch
	FirstTS time.Time  // its time
	LastTS  time.Time  // time of the newest event
	Rows    int
	Digest  Digest

	FirstAsk    schema.Seq // first event that may ask a question (schema.Ask); 0: there is none
	FirstAnswer schema.Seq // first event that may end a question; 0: there is none

	Naming Naming // of all events, some of which may be stored already

	Session []SessionEvent // of the root, in the order of their seqs; some may be stored already
}

// Batch is a list of chunks, ordered for a transaction. All stores write runs and rows in this order, so that
// transactions of several persisters do not deadlock.
type Batch struct {
	Runs      []Run
	Rows      []BatchRow
	Conflicts []Conflict // rows of chunks whose day is not their run's
}

// BatchRow is a row with its place in the chunks of the transfer.
type BatchRow struct {
	Row
	Chunk *Chunk
	At    Conflict
}

// Arrange orders chunks for a transaction. days holds the days of runs that the store knows. For others the first chunk
// decides. The rows of a chunk with another day than its run's are conflicts: the day is part of the key, and with two
// days one seq could be stored twice.
func Arrange(chunks []Chunk, days map[schema.RunKey]string) Batch {
	var b Batch
	places := make(map[schema.RunKey]int)
	var groups []runGroup
	rows := 0
	for i := range chunks {
		c := &chunks[i]
		at, ok := places[c.Key]
		if !ok {
			at = len(groups)
			places[c.Key] = at
			groups = append(groups, runGroup{run: Run{Key: c.Key, Head: schema.Head{Day: cmp.Or(days[c.Key], c.Head.Day)}}})
		}
		g := &groups[at]
		if c.Head.Day != g.run.Head.Day {
			for row := range c.Rows {
				b.Conflicts = append(b.Conflicts, Conflict{i, row})
			}
			continue
		}
		g.run.add(c)
		g.chunks = append(g.chunks, i)
		rows += len(c.Rows)
	}
	groups = slices.DeleteFunc(groups, func(g runGroup) bool { return g.run.Rows == 0 })
	slices.SortFunc(groups, func(x, y runGroup) int { return compareKeys(x.run.Key, y.run.Key) })
	b.Runs, b.Rows = make([]Run, len(groups)), make([]BatchRow, 0, rows)
	for i := range groups {
		b.Runs[i] = groups[i].run
		b.appendRun(chunks, groups[i].chunks)
	}
	b.digest()
	return b
}

// runGroup is one run of a batch, with its chunks.
type runGroup struct {
	run    Run
	chunks []int
}

// appendRun appends the rows of one run's chunks in the order of their seqs. Nearly always they are in this
// order already.
func (b *Batch) appendRun(chunks []Chunk, which []int) {
	from, ordered := len(b.Rows), true
	for _, i := range which {
		c := &chunks[i]
		for row := range c.Rows {
			if n := len(b.Rows); n > from && b.Rows[n-1].Seq > c.Rows[row].Seq {
				ordered = false
			}
			b.Rows = append(b.Rows, BatchRow{c.Rows[row], c, Conflict{i, row}})
		}
	}
	if !ordered {
		slices.SortStableFunc(b.Rows[from:], func(x, y BatchRow) int { return cmp.Compare(x.Seq, y.Seq) })
	}
}

// digest fills the runs' digests. Of rows with the same key only the first counts, because only it can be stored.
func (b *Batch) digest() {
	run := 0
	for i := range b.Rows {
		row := &b.Rows[i]
		root := row.Chunk.Child == ""
		session := root && IsSession(row.Type)
		turn := root && (row.Type == schema.TypeTurnStart || row.Type == schema.TypeTurnEnd)
		asks := schema.MayAsk(row.Type) && mayAsk(row)
		naming := IsNaming(row.Type)
		if !naming && row.Type != schema.TypeRunLifecycle && !session && !turn && !asks && !schema.MayAnswer(row.Type) {
			continue
		}
		if i > 0 && b.Rows[i-1].Seq == row.Seq && b.Rows[i-1].Chunk.Key == row.Chunk.Key {
			continue
		}
		for b.Runs[run].Key != row.Chunk.Key { // both are in the order of keys
			run++
		}
		r := &b.Runs[run]
		if asks && r.FirstAsk == 0 {
			r.FirstAsk = row.Seq
		}
		if r.FirstAnswer == 0 && schema.MayAnswer(row.Type) {
			r.FirstAnswer = row.Seq
		}
		if naming {
			r.Naming.Add(row.Seq, row.Type, row.Chunk.Child, row.Payload)
		}
		if !session {
			b.Runs[run].Digest.Add(row.Seq, row.TS, row.Type, row.Chunk.Child, row.Payload)
		} else if e, ok := SessionEventOf(row.Seq, row.Type, row.Line); ok {
			b.Runs[run].Session = append(b.Runs[run].Session, e)
		}
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
	if have, ok := r.Lanes[c.Child]; !ok && (l.Owner != "" || c.Child != "") || ok && l.Owner != "" &&
		(have.Owner == "" || l.Epoch > have.Epoch) {
		if r.Lanes == nil {
			r.Lanes = make(map[string]schema.Lane)
		}
		r.Lanes[c.Child] = l
	}
	r.Rows += len(c.Rows)
}

func compareKeys(x, y schema.RunKey) int {
	return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.Run, y.Run))
}
