package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"agentstream/schema"
)

// seenRuns remembers of runs which messages and calls their stored events begin and end, so that nobody needs to look for
// what an event may repeat: nearly no event repeats anything. What it remembers may be more than what is stored, since a
// transaction may fail and events expire; then the tables are asked in vain. It is never less: only this store's
// transactions add events, and when another process has written it forgets all. They use it one after the other.
//
// It holds the runs of the last mostSeen weights in young, and those of as many before them in old.
type seenRuns struct {
	version    int64 // of the file, as PRAGMA data_version has it
	young, old map[schema.RunKey]*seenRun
	weight     int // of young
}

// seenRun is what is remembered of a run.
type seenRun struct {
	whole  bool                 // from its first event on
	last   schema.Seq           // of its events
	before schema.Seq           // last before this transaction
	frames map[int64]frameKinds // by the sums of starts
}

// isNew reports whether this transaction is the first that has rows of the run.
func (r *seenRun) isNew() bool { return r.whole && r.before == 0 }

// frameKinds is which events are stored of a message or a call.
type frameKinds byte

const (
	hasStart frameKinds = 1 << iota
	hasEnd
)

const (
	mostSeen  = 1 << 17 // weights: some 3 MB
	runWeight = 8       // of a run without frames; each frame adds one
)

const (
	dataVersion = `pragma data_version`
	isStored    = `select last_seq, framed_seq from agent_runs where koder_user_id = ? and id = ?`
)

// expectVersion forgets everything unless the file has the version. That changes when another connection has written.
func (s *seenRuns) expectVersion(version int64) {
	if s.young == nil || s.version != version {
		*s = seenRuns{version: version, young: make(map[schema.RunKey]*seenRun)}
	}
}

// find returns what is remembered of a run, nil for nothing.
func (s *seenRuns) find(key schema.RunKey) *seenRun {
	if r := s.young[key]; r != nil {
		return r
	}
	r := s.old[key]
	if r != nil {
		s.add(key, r)
	}
	return r
}

// add remembers a run, and forgets those that nobody has asked for in a long time.
func (s *seenRuns) add(key schema.RunKey, r *seenRun) {
	s.grow(runWeight + len(r.frames))
	s.young[key] = r
}

func (s *seenRuns) grow(weight int) {
	s.weight += weight
	if s.weight > mostSeen {
		s.young, s.old, s.weight = make(map[schema.RunKey]*seenRun), s.young, weight
	}
}

// addFrame remembers a frame of a run and reports whether it surely repeats nothing: it comes after all that is stored of
// the run, and is the first start or the first end of what it begins or ends, the end after the start.
func (s *seenRuns) addFrame(r *seenRun, f frame) (plain bool) {
	if !r.whole {
		return false
	}
	of := hasStart
	if f.isEnd() {
		of = hasEnd
	}
	have, known := r.frames[f.sum&^1]
	if !known {
		if r.frames == nil {
			r.frames = make(map[int64]frameKinds)
		}
		s.grow(1)
	}
	r.frames[f.sum&^1] = have | of
	return f.row.Seq > r.before && (have == 0 || have == hasStart && of == hasEnd)
}

// see remembers that a batch has rows of a run, up to a seq, and returns what was remembered of it before.
func (tx *transaction) see(ctx context.Context, key schema.RunKey, last schema.Seq) (*seenRun, error) {
	seen := &tx.store.seen
	r := seen.find(key)
	if r == nil {
		var stored, framed schema.Seq
		err := tx.queryRow(ctx, stIsStored, key.Tenant, key.Run).Scan(&stored, &framed)
		r = &seenRun{whole: errors.Is(err, sql.ErrNoRows)}
		if err == nil && stored > framed {
			err = tx.addMissingIDs(ctx, key, framed)
		}
		if err != nil && !r.whole {
			return nil, err
		}
		seen.add(key, r)
	}
	r.before, r.last = r.last, max(r.last, last)
	return r, nil
}
