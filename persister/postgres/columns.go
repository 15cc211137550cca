package postgres

import (
	"strconv"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// columns holds a batch as one array per column: a round trip takes the same time for one row and for thousands. The
// columns of the rows are encoded when the statement is sent.
type columns struct {
	runTenant, runID, runState, runLastID         []string
	runDay, runFirst, runLast                     []time.Time
	runSeq, runFirstSeq, runReasonSeq, runTurnSeq []int64
	runReason, runReasonOf, runTurn, runStop      []string
	runSince                                      []*time.Time
	runOpening, runModel                          []*string
	runOpeningSeq, runModelSeq                    []int64
	runWords                                      []string

	batch *persister.Batch
	dates map[string]time.Time
	plain bool // see packed.plain

	days map[string]bool
}

func columnsOf(b *persister.Batch, plain bool) *columns {
	c := &columns{batch: b, dates: make(map[string]time.Time), plain: plain, days: make(map[string]bool)}
	for i := range b.Runs {
		r := &b.Runs[i]
		day, _ := time.Parse(dayLayout, r.Head.Day) // ensureDays returns an error for a day that does not parse
		c.dates[r.Head.Day], c.days[r.Head.Day] = day, true
		c.runTenant, c.runID = append(c.runTenant, r.Key.Tenant), append(c.runID, r.Key.Run)
		c.runDay, c.runState = append(c.runDay, day), append(c.runState, string(r.Head.State))
		c.runSeq, c.runLastID = append(c.runSeq, int64(r.Head.Last)), append(c.runLastID, r.Head.LastID)
		c.runFirst, c.runLast = append(c.runFirst, r.FirstTS), append(c.runLast, r.LastTS)
		c.runFirstSeq, c.runReasonSeq = append(c.runFirstSeq, int64(r.First)), append(c.runReasonSeq,
			int64(r.Digest.ReasonSeq))
		c.runReason, c.runReasonOf = append(c.runReason, r.Digest.Reason), append(c.runReasonOf, string(r.Digest.ReasonOf))
		c.runTurn, c.runStop = append(c.runTurn, string(r.Digest.Turn)), append(c.runStop, r.Digest.Stop)
		c.runTurnSeq = append(c.runTurnSeq, int64(r.Digest.TurnSeq))
		var since *time.Time
		if r.Digest.ReasonSeq != 0 {
			since = &r.Digest.Since
		}
		c.runSince = append(c.runSince, since)
		c.addNaming(&r.Naming)
	}
	return c
}

// addNaming adds the columns of a run by which lists find it when it is new.
func (c *columns) addNaming(n *persister.Naming) {
	known := func(text *string) *string {
		if *text == "" {
			return nil
		}
		return text
	}
	words := ""
	if (*n != persister.Naming{}) {
		words = n.Columns(nil).Words
	}
	c.runOpening, c.runOpeningSeq = append(c.runOpening, known(&n.Opening)), append(c.runOpeningSeq, int64(n.OpeningSeq))
	c.runModel, c.runModelSeq = append(c.runModel, known(&n.Model)), append(c.runModelSeq, int64(n.ModelSeq))
	c.runWords = append(c.runWords, words)
}

func (c *columns) runs() []any {
	return []any{c.runTenant, c.runID, c.runDay, c.runState, c.runSeq, c.runLastID, c.runFirst, c.runLast,
		c.runFirstSeq, c.runReason, c.runReasonOf, c.runReasonSeq,
		c.runTurn, c.runStop, c.runTurnSeq, c.runSince, int64(schema.MaxSeq),
		c.runOpening, c.runOpeningSeq, c.runModel, c.runModelSeq, c.runWords}
}

// stateArgs returns the arguments of enterStates, nil when it changes nothing.
func (c *columns) stateArgs() []any {
	var tenant, run []string
	var seq []int64
	var ts []time.Time
	for i := range c.batch.Runs {
		r := &c.batch.Runs[i]
		if d := &r.Digest; d.ReasonSeq != 0 && !d.Same {
			tenant, run, seq, ts = append(tenant, r.Key.Tenant), append(run, r.Key.Run), append(seq,
				int64(d.ReasonSeq)), append(ts, d.Since)
		}
	}
	if tenant == nil {
		return nil
	}
	return []any{tenant, run, seq, ts}
}

// lanes returns the arguments of upsertLanes, nil when there are no lanes.
func (c *columns) lanes(b *persister.Batch, p *plan) []any {
	var tenant, run, lane, owner, epoch []string
	for i := range b.Runs {
		r := &b.Runs[i]
		if p.gone[r.Key] {
			continue
		}
		for name, l := range r.Lanes {
			tenant, run = append(tenant, r.Key.Tenant), append(run, r.Key.Run)
			lane, owner = append(lane, name), append(owner, l.Owner)
			epoch = append(epoch, strconv.FormatUint(l.Epoch, 10))
		}
	}
	if tenant == nil {
		return nil
	}
	return []any{tenant, run, lane, owner, epoch}
}

// dayRows returns a day's rows for a COPY.
func (c *columns) dayRows(day string, ways []way) *copyRows {
	return &copyRows{rows: c.batch.Rows, ways: ways, day: day, value: packed{dates: c.dates}}
}

// rows returns columns of some rows, as arguments.
func (c *columns) rows(rows []persister.BatchRow, which ...column) []any {
	const least = 64 // approximate bytes of a row's values and their lengths, without its line
	room := 0
	if !c.plain {
		for i := range rows {
			room += least + 2*len(rows[i].Line)
		}
	}
	args := make([]any, len(which))
	for i, name := range which {
		p := packed{column: name, rows: rows, dates: c.dates}
		if i == 0 {
			p.room = room
		}
		args[i] = p
		if c.plain {
			args[i] = p.plain()
		}
	}
	return args
}

// sums returns the arguments of updateUsage: the stored usage plus that of the batch, without the events in old. It
// returns nil when no usage changes.
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
