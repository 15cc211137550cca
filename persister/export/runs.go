package export

import "agentstream/schema"

// RunRow is a row of the table runs.
type RunRow struct {
	Tenant       string  `parquet:"tenant,dict"`
	RunID        string  `parquet:"run_id"`
	RunDay       int32   `parquet:"run_day,date,dict"`
	State        *string `parquet:"state,optional,dict"`
	Reason       *string `parquet:"reason,optional"`
	LastSeq      int64   `parquet:"last_seq"`
	StartedAt    int64   `parquet:"started_at,timestamp(microsecond)"`
	UpdatedAt    int64   `parquet:"updated_at,timestamp(microsecond)"`
	EndedAt      *int64  `parquet:"ended_at,timestamp(microsecond),optional"`
	InputTokens  *int64  `parquet:"input_tokens,optional"`
	OutputTokens *int64  `parquet:"output_tokens,optional"`
	Usage        *string `parquet:"usage,optional"`
}

// runs writes the table runs, from the list of runs.
type runs struct {
	rows *parquetFiles[RunRow]
}

func (t *runs) openRun(r *run) error {
	row := RunRow{Tenant: r.key.Tenant, RunID: r.key.Run, RunDay: r.day, LastSeq: int64(r.info.Last),
		State: text(string(r.info.State)), Reason: text(r.info.Reason),
		StartedAt: r.info.Started.UnixMicro(), UpdatedAt: r.info.Updated.UnixMicro()}
	if ended := r.info.EndTime(); !ended.IsZero() {
		row.EndedAt = new(ended.UnixMicro())
	}
	if len(r.info.Usage) > 0 {
		usage := r.info.Usage.String()
		row.Usage = &usage
		row.InputTokens, row.OutputTokens = tokens(fields{}.read([]byte(usage)))
	}
	t.rows.openRun(r.key)
	return t.rows.add(row, len(r.info.Reason)+100*len(r.info.Usage)+200)
}

func (t *runs) pack(*schema.Pack) error { return nil }

func (t *runs) closeRun(through schema.Seq) error { return t.rows.closeRun(through) }

func (t *runs) finish() (int64, error) { return t.rows.finish() }

// text returns nil for "".
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
