package postgres

import (
	"agentstream/persister"
	"agentstream/schema"
)

// way is how a row is stored.
type way byte

const (
	wayInsert way = iota // it may be there already
	wayCopy
	wayDrop // it is at or below its run's floor, or its run was deleted
)

// plan decides how each row of a batch is stored. It is made after the runs are locked.
type plan struct {
	ways    []way    // of the batch's rows
	days    []string // to be copied into, each once
	insert  []persister.BatchRow
	dropped int
	gone    map[schema.RunKey]bool // runs that were deleted
}

// planOf returns the plan of a batch. A row after its run's newest stored row cannot be stored yet, and no other
// transaction can store it, because the run is locked: it is copied. When stored is from before the wait for the lock,
// the row may be stored after all; then COPY fails with a unique violation.
func planOf(b *persister.Batch, stored map[schema.RunKey]storedRun, copying bool) plan {
	p := plan{ways: make([]way, len(b.Rows))}
	fresh := make(map[string]int) // rows by day
	at := 0
	for i := range b.Runs {
		run := &b.Runs[i]
		ways := p.ways[at : at+run.Rows]
		have, known := stored[run.Key]
		if !known {
			if p.gone == nil {
				p.gone = make(map[schema.RunKey]bool)
			}
			p.gone[run.Key] = true
		}
		for j := range ways {
			switch row := &b.Rows[at+j]; {
			case !known || row.Seq <= have.floor:
				ways[j] = wayDrop
				p.dropped++
			case copying && row.Seq > have.last && (j == 0 || b.Rows[at+j-1].Seq != row.Seq):
				ways[j] = wayCopy
				fresh[run.Head.Day]++
			}
		}
		at += run.Rows
	}
	p.divide(b, fresh)
	return p
}

// divide collects the rows to insert: those that may be stored, and all rows of days with fewer than copyLeast.
func (p *plan) divide(b *persister.Batch, fresh map[string]int) {
	copied := 0
	for day, n := range fresh {
		if n >= copyLeast {
			p.days = append(p.days, day)
			copied += n
		}
	}
	if copied+p.dropped == len(b.Rows) {
		return
	}
	if copied+p.dropped == 0 {
		clear(p.ways)
		p.insert = b.Rows
		return
	}
	p.insert = make([]persister.BatchRow, 0, len(b.Rows)-copied-p.dropped)
	for i := range b.Rows {
		if p.ways[i] == wayCopy && fresh[b.Rows[i].Chunk.Head.Day] < copyLeast {
			p.ways[i] = wayInsert
		}
		if p.ways[i] == wayInsert {
			p.insert = append(p.insert, b.Rows[i])
		}
	}
}

// dropDeleted returns the conflicts without those of deleted runs, of which nothing is stored, not even dead
// letters.
func (p *plan) dropDeleted(conflicts []persister.Conflict, chunks []persister.Chunk) (kept []persister.Conflict) {
	for _, c := range conflicts {
		if !p.gone[chunks[c.Chunk].Key] {
			kept = append(kept, c)
		}
	}
	return kept
}
