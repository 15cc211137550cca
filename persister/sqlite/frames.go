package sqlite

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// insertFrames keeps what the starts and ends of messages say of their model or usage: views and lists read it there. The
// events that are stored count, where other ones come with their numbers. What it makes of them is in the triggers of the
// tables, and holds whatever the events are.
const insertFrames = `insert into agent_run_frames select koder_user_id, run_id, seq, child_id, type, ts, line
	from agent_run_events
	where koder_user_id = ? and run_id = ? and seq >= ? + 0 and seq <= ? + 0 and (type = 'message.start' or type = 'message.end')`

// insertModel and insertFrameUsage keep the same of one event that is read here, in a third of the time. Nearly all can
// be; in doubt the triggers read them. insertID keeps what an event begins or ends, so that what repeats it is known.
const (
	insertModel      = `insert or ignore into agent_run_models (koder_user_id, run_id, lane, seq, model) values (?,?,?,?,?)`
	insertFrameUsage = `insert or ignore into agent_run_usage (koder_user_id, run_id, seq, lane, day, reported, input_tokens, output_tokens,
	cache_read_tokens, cache_write_tokens) values (?,?,?,?,?,?,?,?,?,?)`
	insertID = `insert or ignore into agent_run_ids (koder_user_id, run_id, frame, seq) values (?,?,?,?)`
)

// severalRows makes of a statement that inserts one row one that inserts n.
func severalRows(text string, n int) string {
	at := strings.LastIndex(text, "(")
	return text + strings.Repeat(","+text[at:], n-1)
}

// frame is an event that begins or ends a message or a call.
type frame struct {
	row *persister.BatchRow
	sum int64 // of what it begins or ends, by frameSum; 0: it has no id

	says  persister.MessageFrame
	plain bool // that is all there is to keep of it
}

func (f frame) isEnd() bool {
	return f.row.Type == schema.TypeMessageEnd || f.row.Type == schema.TypeToolEnd
}

// frameSum names the start or the end of a message or a call of a run. That of the end is greater by one.
func frameSum(typ, child, id string) int64 {
	kind, end := "m", int64(0)
	if typ == schema.TypeToolStart || typ == schema.TypeToolEnd {
		kind = "t"
	}
	if typ == schema.TypeMessageEnd || typ == schema.TypeToolEnd {
		end = 1
	}
	var buf [128]byte
	text := append(append(append(append(buf[:0], kind...), child...), 0), id...)
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:]))&^1 | end
}

// framesOf returns the frames among rows that are stored, now or before: all but the conflicts.
func framesOf(rows []persister.BatchRow, conflicts []persister.Conflict) (frames []frame) {
	var others map[persister.Conflict]bool
	if len(conflicts) > 0 {
		others = make(map[persister.Conflict]bool)
	}
	for _, c := range conflicts {
		others[c] = true
	}
	n := 0
	for i := range rows {
		if isFrame(rows[i].Type) {
			n++
		}
	}
	frames = make([]frame, 0, n)
	for i := range rows {
		r := &rows[i]
		if !isFrame(r.Type) || others[r.At] {
			continue
		}
		id, says, ok := persister.ReadFrame(&r.Row)
		f := frame{row: r, says: says, plain: ok && isPlainTime(r.TS)}
		if id != "" {
			f.sum = frameSum(r.Type, r.Chunk.Child, id)
		}
		frames = append(frames, f)
	}
	return frames
}

func isFrame(typ string) bool {
	switch typ {
	case schema.TypeMessageStart, schema.TypeMessageEnd, schema.TypeToolStart, schema.TypeToolEnd:
		return true
	}
	return false
}

// framesOfRun cuts the frames of a run from frames that begin with them.
func framesOfRun(frames *[]frame, key schema.RunKey) (of []frame) {
	n := 0
	for n < len(*frames) && (*frames)[n].row.Chunk.Key == key {
		n++
	}
	of, *frames = (*frames)[:n], (*frames)[n:]
	return of
}

// keepFrames keeps what the frames of a batch say.
func (tx *transaction) keepFrames(ctx context.Context, frames []frame) error {
	k := kept{
		ids:    several{first: stInsertIDs, columns: strings.Count(insertID, "?")},
		models: several{first: stInsertModels, columns: strings.Count(insertModel, "?")},
		usage:  several{first: stInsertUsage, columns: strings.Count(insertFrameUsage, "?")},
	}
	for i := range frames {
		f := &frames[i]
		if !k.add(f) {
			key, seq := f.row.Chunk.Key, int64(f.row.Seq)
			if _, err := tx.exec(ctx, stFrames, key.Tenant, key.Run, seq, seq); err != nil {
				return err
			}
		}
		if err := tx.insertKept(ctx, &k, i == len(frames)-1); err != nil {
			return err
		}
	}
	return nil
}

// insertKept inserts of each table what the longest statement takes, or all. What messages have used comes after the
// models that they name.
func (tx *transaction) insertKept(ctx context.Context, k *kept, all bool) error {
	usage := all || k.usage.isFull()
	if all || k.ids.isFull() {
		if err := tx.insertSeveral(ctx, &k.ids); err != nil {
			return err
		}
	}
	if usage || k.models.isFull() {
		if err := tx.insertSeveral(ctx, &k.models); err != nil {
			return err
		}
	}
	if !usage {
		return nil
	}
	return tx.insertSeveral(ctx, &k.usage)
}

// several are rows of one table that are inserted together.
type several struct {
	first   statement // of those in keepSizes
	columns int
	args    []any // row after row
}

func (s *several) isFull() bool { return len(s.args) >= keepSizes[0]*s.columns }

// insertSeveral inserts rows with as few statements as possible, and empties s.
func (tx *transaction) insertSeveral(ctx context.Context, s *several) error {
	args := s.args
	for i, n := range keepSizes {
		for len(args) >= n*s.columns {
			if _, err := tx.exec(ctx, s.first+statement(i), args[:n*s.columns]...); err != nil {
				return err
			}
			args = args[n*s.columns:]
		}
	}
	s.args = s.args[:0]
	return nil
}

// kept is what frames say.
type kept struct {
	ids, models, usage several

	of          schema.RunKey // of the frame before
	tenant, run any
}

// add adds a frame, and reports whether that is all there is to keep of it.
func (k *kept) add(f *frame) bool {
	r := f.row
	if k.tenant == nil || k.of != r.Chunk.Key {
		k.of, k.tenant, k.run = r.Chunk.Key, r.Chunk.Key.Tenant, r.Chunk.Key.Run
	}
	var seq any = int64(r.Seq)
	if f.sum != 0 {
		k.ids.args = append(k.ids.args, k.tenant, k.run, f.sum, seq)
	}
	if r.Type != schema.TypeMessageStart && r.Type != schema.TypeMessageEnd {
		return true
	}
	says := &f.says
	switch {
	case !f.plain:
		return false
	case r.Type == schema.TypeMessageEnd:
		k.usage.args = append(k.usage.args, k.tenant, k.run, seq, r.Chunk.Child, r.TS.Format(time.DateOnly), says.Reported,
			says.Input, says.Output, says.CacheRead, says.CacheWrite)
	default:
		var model any
		if says.Model != nil {
			model = *says.Model
		}
		k.models.args = append(k.models.args, k.tenant, k.run, r.Chunk.Child, seq, model)
	}
	return true
}

// isPlainTime reports whether the day of a time is what SQLite's function date makes of it, which rounds it to
// milliseconds and knows four digits of a year.
func isPlainTime(ts time.Time) bool {
	_, offset := ts.Zone()
	return ts.Year() > 0 && ts.Year() < 9999 && offset == 0 &&
		(ts.Hour() < 23 || ts.Minute() < 59 || ts.Second() < 59)
}
