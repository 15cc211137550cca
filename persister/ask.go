package persister

import (
	"bytes"
	"time"

	"agentstream/schema"
)

// mayAsk reports whether a row may be one that asks, by what is seen without reading it: nearly no call of a tool does.
func mayAsk(row *BatchRow) bool {
	return row.Type == schema.TypeInputRequested || bytes.Contains(row.Line, []byte(`"ask"`)) || bytes.Contains(row.Line, []byte(`"custom"`))
}

// AsksFrom returns the first seq from which a store reads the run's stored events of schema.AskTypes, to merge them into
// the questions that are open; 0: the batch changes nothing of these. open says that there were some before.
func (r *Run) AsksFrom(open bool) schema.Seq {
	from := r.FirstAsk
	if open && r.FirstAnswer != 0 && (from == 0 || r.FirstAnswer < from) {
		from = r.FirstAnswer
	}
	return from
}

// AskEventOf reads a line of the log. ok is false for one that says nothing of questions.
func AskEventOf(seq schema.Seq, ts time.Time, typ, child string, line []byte) (e schema.AskEvent, ok bool) {
	r, err := schema.ScanLine(line)
	if err != nil {
		return e, false
	}
	return schema.AskEventOf(seq, ts, typ, child, r.Payload())
}
