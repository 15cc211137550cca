package export

import (
	"bytes"

	"agentstream/schema"
)

// EventRow is a row of the table events: the envelope, the payload as it arrived, and fields of the payload that
// queries often need. In all rows a field that may be absent is a pointer: parquet-go writes some nil slices as
// empty.
type EventRow struct {
	Tenant string `parquet:"tenant,dict"`
	RunID  string `parquet:"run_id,dict"`
	RunDay int32  `parquet:"run_day,date,dict"`
	Seq    int64  `parquet:"seq,delta"`
	ID     []byte `parquet:"id,string"`
	TS     int64  `parquet:"ts,timestamp(microsecond),delta"`
	Type   []byte `parquet:"type,string,dict"`

	ChildID  *string `parquet:"child_id,optional,dict"`
	TurnID   *string `parquet:"turn_id,optional,dict"`
	FirstSeq *int64  `parquet:"first_seq,optional"`
	Actor    *string `parquet:"actor,optional,dict"`
	Cause    *string `parquet:"cause,optional"`
	Payload  []byte  `parquet:"payload,string"`

	MessageID    *string  `parquet:"message_id,optional,dict"`
	Role         *string  `parquet:"role,optional,dict"`
	Model        *string  `parquet:"model,optional,dict"`
	Index        *int64   `parquet:"block_index,optional,dict"`
	Text         *string  `parquet:"text,optional"`
	CallID       *string  `parquet:"call_id,optional,dict"`
	Tool         *string  `parquet:"tool,optional,dict"`
	OK           *bool    `parquet:"ok,optional"`
	DurationMS   *float64 `parquet:"duration_ms,optional"`
	State        *string  `parquet:"state,optional,dict"`
	StopReason   *string  `parquet:"stop_reason,optional,dict"`
	InputTokens  *int64   `parquet:"input_tokens,optional"`
	OutputTokens *int64   `parquet:"output_tokens,optional"`
	Usage        *string  `parquet:"usage,optional"`
}

// maxLanes bounds the number of open messages that are kept.
const maxLanes = 10_000

// speaking is the open message of a lane.
type speaking struct{ id, model *string }

// events writes the table events.
type events struct {
	rows *parquetFiles[EventRow]
	run  *run
	open map[string]speaking // by child

	payload, inner, attributes fields
}

func (t *events) openRun(r *run) error {
	t.run, t.open = r, make(map[string]speaking)
	t.rows.openRun(r.key)
	return nil
}

func (t *events) pack(p *schema.Pack) error {
	for r, err := range p.Records(0) {
		if err != nil {
			return err
		}
		row := EventRow{Tenant: t.run.key.Tenant, RunID: t.run.key.Run, RunDay: t.run.day, Seq: int64(r.Seq),
			Type: r.Type, ChildID: text(string(r.Child))}
		row.ID, row.TS = envelope(r)
		t.describe(&row, r)
		t.follow(&row, r)
		if r.Seq <= t.run.skip {
			continue
		}
		if err := t.rows.add(row, len(r.Line)+100); err != nil {
			return err
		}
		if err := t.rows.markReached(r.Seq); err != nil {
			return err
		}
	}
	return nil
}

// envelope returns id and time of a line that was scanned.
func envelope(r schema.Record) (id []byte, ts int64) {
	rest := r.Line[len(`{"id":"`):]
	end := bytes.IndexByte(rest, '"')
	id, rest = rest[:end], rest[end+len(`","ts":"`):]
	return id, micros(rest[:bytes.IndexByte(rest, '"')])
}

// describe fills the columns of the optional fields of the envelope and of the payload.
func (t *events) describe(row *EventRow, r schema.Record) {
	row.Payload = r.Payload()
	if a := r.Attributes(); len(a) > 1 {
		obj := append(append(make([]byte, 0, len(a)+1), '{'), a[1:]...)
		t.attributes = t.attributes.read(append(obj, '}'))
		row.TurnID, row.Actor, row.Cause = t.attributes.str("turn_id"), t.attributes.str("actor"), t.attributes.str("cause")
		row.FirstSeq = t.attributes.whole("first_seq")
	}
	t.payload = t.payload.read(row.Payload)
	p := t.payload
	row.MessageID, row.Role, row.Model = p.str("message_id"), p.str("role"), p.str("model")
	row.Index, row.Text = p.whole("index"), p.str("text")
	row.CallID, row.Tool, row.OK, row.DurationMS = p.str("call_id"), p.str("tool"), p.bool("ok"), p.float("duration_ms")
	row.State, row.StopReason = p.str("state"), p.str("stop_reason")
	if usage := p.Object("usage"); usage != nil {
		row.Usage = new(string(usage))
		t.inner = t.inner.read(usage)
		row.InputTokens, row.OutputTokens = tokens(t.inner)
	}
}

// tokens returns the numbers of input and output tokens, under the names that providers use.
func tokens(usage fields) (in, out *int64) {
	first := func(names ...string) *int64 {
		for _, name := range names {
			if n := usage.whole(name); n != nil {
				return n
			}
		}
		return nil
	}
	return first("input_tokens", "prompt_tokens", "promptTokenCount"), first("output_tokens", "completion_tokens",
		"candidatesTokenCount")
}

// follow tracks the open messages, so that the rows of their events have the message id and the model.
func (t *events) follow(row *EventRow, r schema.Record) {
	lane := string(r.Child)
	switch string(r.Type) {
	case schema.TypeMessageStart:
		if _, known := t.open[lane]; known || len(t.open) < maxLanes {
			t.open[lane] = speaking{row.MessageID, row.Model}
		}
		return
	case schema.TypeCommandMessage:
		return
	case schema.TypeRunLifecycle:
		if row.State != nil && schema.RunState(*row.State).Final() {
			delete(t.open, lane)
			if lane == "" {
				clear(t.open)
			}
		}
		return
	}
	open, ok := t.open[lane]
	if !ok {
		return
	}
	if row.MessageID == nil {
		row.MessageID = open.id
	}
	if row.Model == nil && open.id != nil && *row.MessageID == *open.id {
		row.Model = open.model
	}
	if string(r.Type) == schema.TypeMessageEnd {
		delete(t.open, lane)
	}
}

func (t *events) closeRun(through schema.Seq) error { return t.rows.closeRun(through) }

func (t *events) finish() (int64, error) { return t.rows.finish() }
