package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/persister/postgres/projection"
	"agentstream/schema"
)

// news is which of a batch's frames, and events of sessions, are new. What is copied is; of what is inserted the database is asked.
type news struct {
	doubtful bool // some are among what is inserted
	stored   map[schema.RunKey]map[schema.Seq]bool
}

// newsOf looks for them among what is inserted.
func newsOf(p *plan) *news {
	n := new(news)
	for i := range p.insert {
		if projection.IsFrame(p.insert[i].Type) || persister.IsSession(p.insert[i].Type) {
			n.doubtful = true
			break
		}
	}
	return n
}

// read takes the answer of insertAndTell and gives the number of rows that it stored.
func (n *news) read(rows pgx.Rows) (inserted int, err error) {
	n.stored = make(map[schema.RunKey]map[schema.Seq]bool)
	var key schema.RunKey
	var seq schema.Seq
	var count int
	_, err = pgx.ForEachRow(rows, []any{&key.Tenant, &key.Run, &seq, &count}, func() error {
		if inserted += count; count > 0 {
			return nil
		}
		if n.stored[key] == nil {
			n.stored[key] = make(map[schema.Seq]bool)
		}
		n.stored[key][seq] = true
		return nil
	})
	return inserted, err
}

// collect reads the frames of a batch that are new, and returns the usage that is not to be counted. Of rows with
// one key only the first can have been stored.
func (n *news) collect(b *persister.Batch, p *plan, dates map[string]time.Time) (f projection.Frames, old map[schema.RunKey]map[schema.Seq]bool) {
	for i := range b.Rows {
		row := &b.Rows[i]
		if !projection.IsFrame(row.Type) {
			continue
		}
		key := row.Chunk.Key
		if i > 0 && b.Rows[i-1].Seq == row.Seq && b.Rows[i-1].Chunk.Key == key {
			continue
		}
		if p.ways[i] == wayDrop || p.ways[i] == wayInsert && !n.stored[key][row.Seq] {
			if old == nil {
				old = make(map[schema.RunKey]map[schema.Seq]bool)
			}
			if old[key] == nil {
				old[key] = make(map[schema.Seq]bool)
			}
			old[key][row.Seq] = true
			continue
		}
		f.Add(&projection.Place{Key: key, Lane: row.Chunk.Child, Day: dates[row.Chunk.Head.Day], TS: row.TS, Seq: row.Seq}, row.Type, payloadOf(row))
	}
	return f, old
}

// payloadOf returns the payload also where jsonb has refused it.
func payloadOf(row *persister.BatchRow) []byte {
	if row.Payload != nil {
		return row.Payload
	}
	r, err := schema.ScanLine(row.Line)
	if err != nil {
		return nil
	}
	return r.Payload()
}
