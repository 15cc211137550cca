package export

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"agentstream/schema"
)

// MessageRow is a row of the table messages: one message with its whole text.
type MessageRow struct {
	Tenant     string `parquet:"tenant,dict"`
	RunID      string `parquet:"run_id,dict"`
	RunDay     int32  `parquet:"run_day,date,dict"`
	Seq        int64  `parquet:"seq"`
	EndSeq     *int64 `parquet:"end_seq,optional"`
	RunLastSeq int64  `parquet:"run_last_seq,dict"`

	MessageID *string `parquet:"message_id,optional"`
	ChildID   *string `parquet:"child_id,optional,dict"`
	Role      []byte  `parquet:"role,string,dict"`
	Model     *string `parquet:"model,optional,dict"`
	Text      []byte  `parquet:"text,string"`
	Reasoning []byte  `parquet:"reasoning,string"`
	ToolCalls int32   `parquet:"tool_calls"`

	StartedAt    int64   `parquet:"started_at,timestamp(microsecond)"`
	EndedAt      *int64  `parquet:"ended_at,timestamp(microsecond),optional"`
	StopReason   *string `parquet:"stop_reason,optional,dict"`
	InputTokens  *int64  `parquet:"input_tokens,optional"`
	OutputTokens *int64  `parquet:"output_tokens,optional"`
	Usage        *string `parquet:"usage,optional"`
	Error        *string `parquet:"error,optional"`
}

// ToolCallRow is a row of the table tool_calls.
type ToolCallRow struct {
	Tenant     string `parquet:"tenant,dict"`
	RunID      string `parquet:"run_id,dict"`
	RunDay     int32  `parquet:"run_day,date,dict"`
	Seq        int64  `parquet:"seq"`
	EndSeq     *int64 `parquet:"end_seq,optional"`
	RunLastSeq int64  `parquet:"run_last_seq,dict"`

	CallID  []byte  `parquet:"call_id,string"`
	ChildID *string `parquet:"child_id,optional,dict"`
	Tool    *string `parquet:"tool,optional,dict"`
	Outcome []byte  `parquet:"outcome,string,dict"` // ok, error, open

	StartedAt  int64    `parquet:"started_at,timestamp(microsecond)"`
	EndedAt    *int64   `parquet:"ended_at,timestamp(microsecond),optional"`
	DurationMS *float64 `parquet:"duration_ms,optional"` // as the producer reported, else between the two events
	Input      *string  `parquet:"input,optional"`
	Output     *string  `parquet:"output,optional"`
	Error      *string  `parquet:"error,optional"`
	Streamed   *string  `parquet:"streamed_output,optional"`
	BlobRef    *string  `parquet:"blob_ref,optional"`
}

// Bounds of open folds.
const (
	laneBytes  = 16 << 20
	lanesBytes = 64 << 20
)

// laneFold folds one lane since the last time when nothing was open in it. A fold whose rows are all written is
// started again, so that it does not grow with the run.
type laneFold struct {
	schema.Fold
	times map[schema.Seq]int64 // of events that may begin or end something, in microseconds
	// Messages and calls before these have ended.
	message, call int
}

// timeCost is the approximate memory of an entry of times, in bytes.
const timeCost = 48

func (l *laneFold) bytes() int { return l.Size() + timeCost*len(l.times) }

// An emit appends the rows of a lane's fold.
type emit[T any] func(dst []sized[T], r *run, l *laneFold) []sized[T]

// sized is a row with its place in the run and its approximate size in bytes.
type sized[T any] struct {
	row  T
	seq  schema.Seq
	size int
}

// folded writes a table with one row for several events.
type folded[T any] struct {
	rows  *parquetFiles[T]
	emit  emit[T]
	run   *run
	lanes map[string]*laneFold
	size  int
	// Rows wait here until no row with a lower seq can follow.
	ready     []sized[T]
	readySize int
}

func newFolded[T any](rows *parquetFiles[T], emit emit[T]) *folded[T] {
	return &folded[T]{rows: rows, emit: emit}
}

func (t *folded[T]) openRun(r *run) error {
	t.run, t.lanes, t.size = r, make(map[string]*laneFold), 0
	t.rows.openRun(r.key)
	return nil
}

func (t *folded[T]) pack(p *schema.Pack) error {
	for r, err := range p.Records(0) {
		if err != nil {
			return err
		}
		t.addEvent(string(r.Child), r)
		if string(r.Type) == schema.TypeRunLifecycle && r.Child == nil {
			for lane := range t.lanes { // the end of the run ends the lanes of its children
				if lane != "" {
					t.addEvent(lane, r)
				}
			}
		}
	}
	return t.write(false)
}

// addEvent adds an event to a lane's fold and emits the rows of what has ended.
func (t *folded[T]) addEvent(lane string, r schema.Record) {
	l := t.lanes[lane]
	if l == nil {
		l = &laneFold{times: make(map[schema.Seq]int64)}
		t.lanes[lane] = l
	}
	t.size -= l.bytes()
	messages, calls := len(l.Messages), len(l.Calls)
	l.AddRecord(r)
	ends := mayEnd(string(r.Type))
	if len(l.Messages) > messages || len(l.Calls) > calls || ends {
		_, at := envelope(r)
		l.times[r.Seq] = at
		l.times[r.First()] = at // merged deltas begin with the first of them
	}
	t.size += l.bytes()
	if l.empty() || ends && l.quiet() || l.bytes() >= laneBytes || t.size >= lanesBytes {
		t.flushLane(lane)
	}
}

// mayEnd reports whether an event of this type can end a message or a call.
func mayEnd(typ string) bool {
	switch typ {
	case schema.TypeMessageStart, schema.TypeMessageEnd, schema.TypeStepBoundary, schema.TypeRunLifecycle,
		schema.TypeToolEnd, schema.TypeCommandMessage:
		return true
	}
	return false
}

// empty reports whether the fold has no rows.
func (l *laneFold) empty() bool { return len(l.Messages)+len(l.Calls) == 0 }

// quiet reports whether nothing is open. What has ended stays so, and is checked once.
func (l *laneFold) quiet() bool {
	for l.message < len(l.Messages) && l.Messages[l.message].End != 0 {
		l.message++
	}
	for l.call < len(l.Calls) && l.Calls[l.call].Done {
		l.call++
	}
	return l.message == len(l.Messages) && l.call == len(l.Calls)
}

func (t *folded[T]) flushLane(lane string) {
	l := t.lanes[lane]
	before := len(t.ready)
	t.ready = t.emit(t.ready, t.run, l)
	for _, r := range t.ready[before:] {
		t.readySize += r.size
	}
	t.size -= l.bytes()
	delete(t.lanes, lane)
}

// write writes the rows whose order is known: all that began before anything that is still open. When too many wait,
// they are written out of order.
func (t *folded[T]) write(all bool) error {
	if len(t.ready) == 0 {
		return nil
	}
	before := schema.MaxSeq + 1
	if !all && t.readySize < lanesBytes {
		for _, l := range t.lanes {
			before = min(before, l.firstSeq())
		}
	}
	slices.SortStableFunc(t.ready, func(a, b sized[T]) int { return cmp.Compare(a.seq, b.seq) })
	n := 0
	for n < len(t.ready) && t.ready[n].seq < before {
		if err := t.rows.add(t.ready[n].row, t.ready[n].size); err != nil {
			return err
		}
		t.readySize -= t.ready[n].size
		n++
	}
	t.ready = slices.Delete(t.ready, 0, n)
	return nil
}

// firstSeq returns the seq at which the oldest content of the fold begins.
func (l *laneFold) firstSeq() schema.Seq {
	first := schema.MaxSeq
	if len(l.Messages) > 0 {
		first = l.Messages[0].Start
	}
	if len(l.Calls) > 0 {
		first = min(first, l.Calls[0].Start)
	}
	return first
}

func (t *folded[T]) closeRun(through schema.Seq) error {
	for lane := range t.lanes {
		t.flushLane(lane)
	}
	if err := t.write(true); err != nil {
		return err
	}
	return t.rows.closeRun(through)
}

func (t *folded[T]) finish() (int64, error) { return t.rows.finish() }

func messageRows(dst []sized[MessageRow], r *run, l *laneFold) []sized[MessageRow] {
	for _, m := range l.Messages {
		row := MessageRow{Tenant: r.key.Tenant, RunID: r.key.Run, RunDay: r.day, Seq: int64(m.Start),
			RunLastSeq: int64(r.info.Last),
			MessageID:  text(valid(m.ID)), ChildID: text(m.Child), Role: []byte(valid(m.Role)), Model: text(valid(m.Model)),
			StopReason: text(valid(m.StopReason)), Usage: text(string(m.Usage)), Error: text(string(m.Error)),
			StartedAt: l.times[m.Start]}
		row.EndSeq, row.EndedAt = l.endOf(m.End)
		var text, thought strings.Builder
		for _, b := range m.Blocks {
			switch b.Kind {
			case "text":
				text.WriteString(b.Text.String())
			case "reasoning":
				thought.WriteString(b.Text.String())
			case "tool_use":
				row.ToolCalls++
			}
		}
		row.Text, row.Reasoning = []byte(text.String()), []byte(thought.String())
		row.InputTokens, row.OutputTokens = tokens(fields{}.read(m.Usage))
		dst = append(dst, sized[MessageRow]{row, m.Start,
			len(row.Text) + len(row.Reasoning) + len(m.Usage) + len(m.Error) + 300})
	}
	return dst
}

func toolCallRows(dst []sized[ToolCallRow], r *run, l *laneFold) []sized[ToolCallRow] {
	for _, c := range l.Calls {
		row := ToolCallRow{Tenant: r.key.Tenant, RunID: r.key.Run, RunDay: r.day, Seq: int64(c.Start),
			RunLastSeq: int64(r.info.Last),
			CallID:     []byte(valid(c.ID)), ChildID: text(c.Child), Tool: text(valid(c.Tool)), Outcome: []byte(outcome(c)),
			StartedAt:  l.times[c.Start],
			DurationMS: number(c.Duration), Input: text(string(c.Input)), Output: text(string(c.Output)),
			Error: text(string(c.Error)), BlobRef: text(valid(c.Blob))}
		row.EndSeq, row.EndedAt = l.endOf(c.End)
		if row.EndedAt != nil && row.DurationMS == nil {
			row.DurationMS = new(float64(*row.EndedAt-row.StartedAt) / 1e3)
		}
		row.Streamed = text(c.Stream.String())
		dst = append(dst, sized[ToolCallRow]{row, c.Start,
			len(c.Input) + len(c.Output) + len(c.Error) + c.Stream.Len() + 300})
	}
	return dst
}

func outcome(c *schema.FoldCall) string {
	switch {
	case !c.Done:
		return "open"
	case c.OK:
		return "ok"
	}
	return "error"
}

// endOf returns the seq of the end of a message or call and its time, nil when it is open.
func (l *laneFold) endOf(seq schema.Seq) (*int64, *int64) {
	if seq == 0 {
		return nil, nil
	}
	at, known := l.times[seq]
	if !known {
		return new(int64(seq)), nil
	}
	return new(int64(seq)), new(at)
}

// valid returns the text of a fold as valid UTF-8: there an unpaired surrogate is three bytes.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\ufffd")
}
