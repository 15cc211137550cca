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
	wayDrop // it is at or below its run's floor, or its run is to be forgotten
)

// plan says how each row of a batch is stored. It is made once the runs are locked.
type plan struct {
	ways    []way    // of the batch's rows
	days    []string // to be copied into, each once
	insert  []persister.BatchRow
	dropped int
	gone    map[schema.RunKey]bool // runs that are to be forgotten
}

// planOf divides a batch. A row behind its run's newest is stored by nobody yet, and by the lock on the run
// nobody stores it now. Where that is wrong, because stored says what was before the lock was waited for, COPY
// meets the key that is taken.
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

// divide collects what is to be inserted: of a day with a few rows all.
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

// remembered leaves out the conflicts of runs that are to be forgotten: nothing of them is kept, a dead letter
// neither.
func (p *plan) remembered(conflicts []persister.Conflict, chunks []persister.Chunk) (kept []persister.Conflict) {
	for _, c := range conflicts {
		if !p.gone[chunks[c.Chunk].Key] {
			kept = append(kept, c)
		}
	}
	return kept
}
