package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/schema"
)

// usages finds out which of a batch's usage has not been counted. What is copied has not; of what is
// inserted the database is asked, before the rows go in and behind the runs' locks, so that nobody else
// counts the same row.
type usages struct {
	tenant, run []string // to be asked for
	day         []time.Time
	seq         []int64

	counted map[schema.RunKey]map[schema.Seq]bool // is stored, or will not be
}

func usageOf(b *persister.Batch, p *plan) *usages {
	u := &usages{counted: make(map[schema.RunKey]map[schema.Seq]bool)}
	at := 0
	for i := range b.Runs {
		run := &b.Runs[i]
		uses := run.Digest.Usage // in the order of the rows
		for j := at; j < at+run.Rows && len(uses) > 0; j++ {
			if b.Rows[j].Seq != uses[0].Seq {
				continue
			}
			uses = uses[1:]
			switch p.ways[j] {
			case wayDrop:
				u.count(run.Key, b.Rows[j].Seq)
			case wayInsert:
				day, _ := time.Parse(dayLayout, run.Head.Day) // ensureDays refuses what does not parse
				u.tenant, u.run = append(u.tenant, run.Key.Tenant), append(u.run, run.Key.Run)
				u.day, u.seq = append(u.day, day), append(u.seq, int64(b.Rows[j].Seq))
			}
		}
		at += run.Rows
	}
	return u
}

func (u *usages) count(key schema.RunKey, seq schema.Seq) {
	if u.counted[key] == nil {
		u.counted[key] = make(map[schema.Seq]bool)
	}
	u.counted[key][seq] = true
}

// read takes the answer of findCounted.
func (u *usages) read(rows pgx.Rows) error {
	var i int
	_, err := pgx.ForEachRow(rows, []any{&i}, func() error {
		u.count(schema.RunKey{Tenant: u.tenant[i-1], Run: u.run[i-1]}, schema.Seq(u.seq[i-1]))
		return nil
	})
	return err
}

// sums adds what has not been counted to what is stored: the columns of updateUsage, nil when nothing grows.
func (u *usages) sums(b *persister.Batch, stored map[schema.RunKey]storedRun) []any {
	var tenant, run, usage []string
	for i := range b.Runs {
		r := &b.Runs[i]
		if sum := r.Digest.Sum(u.counted[r.Key]); len(sum) > 0 {
			tenant, run = append(tenant, r.Key.Tenant), append(run, r.Key.Run)
			usage = append(usage, schema.ParseUsage(stored[r.Key].usage).Plus(sum).String())
		}
	}
	if tenant == nil {
		return nil
	}
	return []any{tenant, run, usage}
}
