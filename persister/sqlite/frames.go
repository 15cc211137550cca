package sqlite

import (
	"bytes"
	"context"
	"strconv"
	"time"
	"unicode/utf8"

	"agentstream/persister"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// insertFrames keeps what the starts and ends of messages say of their model or usage: views and lists read it there. The
// events that are stored count, where other ones come with their numbers. What it makes of them is in the triggers of the
// tables, and holds whatever the events are.
const insertFrames = `insert into agent_run_frames select koder_user_id, run_id, seq, child_id, type, ts, line
	from agent_run_events indexed by agent_run_events_frames
	where koder_user_id = ? and run_id = ? and seq >= ? + 0 and seq <= ? + 0 and (type = 'message.start' or type = 'message.end')`

// insertModel and insertFrameUsage keep the same of one event that is read here, in a third of the time. Nearly all can
// be; in doubt the triggers read them.
const (
	insertModel      = `insert or ignore into agent_run_models (koder_user_id, run_id, lane, seq, model) values (?, ?, ?, ?, ?)`
	insertFrameUsage = `insert or ignore into agent_run_usage (koder_user_id, run_id, seq, lane, day, reported, input_tokens, output_tokens,
	cache_read_tokens, cache_write_tokens, cost) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, null)`
)

// keepFrames keeps what the starts and ends of messages among stored rows say. allNew: all of the rows were stored now.
func (tx *transaction) keepFrames(ctx context.Context, rows []persister.BatchRow, allNew bool) error {
	for i := range rows {
		r := &rows[i]
		if r.Type != schema.TypeMessageStart && r.Type != schema.TypeMessageEnd {
			continue
		}
		key := r.Chunk.Key
		which, args := stFrames, []any{key.Tenant, key.Run, int64(r.Seq), int64(r.Seq)}
		if allNew {
			if f, ok := readFrame(r); ok {
				which, args = f.statement(r)
			}
		}
		if _, err := tx.exec(ctx, which, args...); err != nil {
			return err
		}
	}
	return nil
}

// frame is what the start or the end of a message says.
type frame struct {
	model    any // text or null, of a start
	day      string
	reported bool
	tokens   [4]int64 // input, output, cache read, cache write
}

func (f *frame) statement(r *persister.BatchRow) (statement, []any) {
	key, child := r.Chunk.Key, r.Chunk.Child
	if r.Type == schema.TypeMessageStart {
		return stModel, []any{key.Tenant, key.Run, child, int64(r.Seq), f.model}
	}
	return stFrameUsage, []any{key.Tenant, key.Run, int64(r.Seq), child, f.day, f.reported,
		f.tokens[0], f.tokens[1], f.tokens[2], f.tokens[3]}
}

// readFrame reads a start or an end as the triggers do. ok is false for what they may read in another way: names that
// stand twice, texts with escapes or without end, numbers that are no integers or huge, details and costs, a time at
// midnight, which SQLite rounds.
func readFrame(r *persister.BatchRow) (f frame, ok bool) {
	const deep = 900 // SQLite reads JSON up to a depth of 1,000
	p := jsonscan.Fields(nil).Read(r.Payload)
	if p == nil || !isOnce(p) || !endsWith(r.Line, r.Payload) || !jsonscan.Valid(r.Line, deep) {
		return f, false
	}
	if r.Type == schema.TypeMessageStart {
		f.model, ok = plainText(p.Raw("model"))
		return f, ok
	}
	f.day, ok = plainDay(r.TS)
	u := p.Object("usage")
	if u == nil || !ok {
		return f, ok
	}
	f.reported = true
	usage := jsonscan.Fields(nil).Read(u)
	return f, isOnce(usage) && f.count(usage)
}

// endsWith reports whether a line is an event whose last field is its payload, and has no other one with this name.
func endsWith(line, payload []byte) bool {
	const name = `"payload":`
	before, _ := bytes.CutSuffix(line, []byte("}"))
	before, ok := bytes.CutSuffix(before, payload)
	return ok && bytes.HasSuffix(before, []byte(name)) && bytes.Count(before, []byte(name)) == 1 &&
		bytes.IndexByte(before, '\\') < 0
}

// isOnce reports whether each name of an object stands once.
func isOnce(fields jsonscan.Fields) bool {
	const most = 32
	if len(fields) > most {
		return false
	}
	for i := range fields {
		for j := range i {
			if bytes.Equal(fields[i].Name, fields[j].Name) {
				return false
			}
		}
	}
	return true
}

// plainText returns a text, or null for what is none.
func plainText(v []byte) (text any, ok bool) {
	const most = 200 // characters that are kept
	if !jsonscan.IsString(v) {
		return nil, true
	}
	inner := v[1 : len(v)-1]
	if len(inner) > most || bytes.IndexByte(inner, '\\') >= 0 || !utf8.Valid(inner) {
		return nil, false
	}
	return string(inner), true
}

// plainDay returns the day of a time.
func plainDay(ts time.Time) (day string, ok bool) {
	_, offset := ts.Zone()
	if y := ts.Year(); y < 1 || y > 9998 || offset != 0 || ts.Hour() == 23 && ts.Minute() == 59 {
		return "", false
	}
	return ts.Format(time.DateOnly), true
}

// count reads the numbers of a usage.
func (f *frame) count(usage jsonscan.Fields) (ok bool) {
	var input, output, thoughts, within, read, write int64
	ok = true
	for _, name := range []string{"input_tokens_details", "prompt_tokens_details", "cost", "cost_usd", "total_cost_usd"} {
		ok = ok && usage.Raw(name) == nil
	}
	first := func(into *int64, names ...string) (found bool) {
		for _, name := range names {
			v := usage.Number(name)
			if v == nil {
				continue
			}
			n, err := strconv.ParseInt(string(v), 10, 64)
			const most = 1 << 53
			if err != nil || n < -most || n > most {
				ok = false
			}
			*into = n
			return true
		}
		return false
	}
	first(&input, "input_tokens", "prompt_tokens", "promptTokenCount")
	first(&output, "output_tokens", "completion_tokens", "candidatesTokenCount")
	first(&thoughts, "thoughtsTokenCount")
	first(&within, "cachedContentTokenCount")
	if !first(&read, "cache_read_input_tokens") {
		read = within
	}
	first(&write, "cache_creation_input_tokens")
	f.tokens = [4]int64{max(input-within, 0), output + thoughts, read, write}
	return ok
}
