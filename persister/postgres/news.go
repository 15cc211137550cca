package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/persister/postgres/projection"
	"agentstream/schema"
)

// news knows which of a batch's frames and session events are new. Copied rows are new. For inserted rows the database
// reports it.
type news struct {
	doubtful bool // some of them are inserted
	stored   map[schema.RunKey]map[schema.Seq]bool
}

// newsOf looks for frames and session events among the rows to insert.
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

// read reads the result of insertReturning and returns the number of rows that it stored.
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

// collect returns the new frames of a batch, and the keys of the old ones, whose usage is counted already. Of rows with
// the same key only the first can have been stored.
func (n *news) collect(b *persister.Batch, p *plan, stored map[schema.RunKey]storedRun,
	dates map[string]time.Time) (f projection.Frames, old map[schema.RunKey]map[schema.Seq]bool) {
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
		f.Add(&projection.Place{Key: key, Lane: row.Chunk.Child, Day: dates[row.Chunk.Head.Day], TS: row.TS,
			Seq: row.Seq, New: row.Seq > stored[key].last}, row.Type, payloadOf(row))
	}
	return f, old
}

// payloadOf returns the payload, also when do has removed it from the row.
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
