package persister

import (
	"bytes"
	"time"

	"agentstream/schema"
)

// mayAsk reports whether a row may ask a question, without decoding it: nearly no tool call does.
func mayAsk(row *BatchRow) bool {
	return row.Type == schema.TypeInputRequested || bytes.Contains(row.Line, []byte(`"ask"`)) ||
		bytes.Contains(row.Line, []byte(`"custom"`))
}

// AsksFrom returns the seq from which a store must read the run's stored events of schema.AskTypes, to merge them into
// the open questions. It returns 0 when the batch does not change them. open reports that the run had open questions
// before.
func (r *Run) AsksFrom(open bool) schema.Seq {
	from := r.FirstAsk
	if from != 0 { // what was asked and has ended before is not asked again
		from = max(1, from-min(from, schema.AskWindow))
	}
	if open && r.FirstAnswer != 0 && (from == 0 || r.FirstAnswer < from) {
		from = r.FirstAnswer
	}
	return from
}

// AskEventOf decodes a line of the log. ok is false for a line that is about no question.
func AskEventOf(seq schema.Seq, ts time.Time, typ, child string, line []byte) (e schema.AskEvent, ok bool) {
	r, err := schema.ScanLine(line)
	if err != nil {
		return e, false
	}
	return schema.AskEventOf(seq, ts, typ, child, r.Payload())
}
