package sqlstore

import (
	"context"
	"encoding/hex"
	"strconv"

	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/schema"
)

const removeDeadLetters = `delete from agent_dead_letters where koder_user_id = $1 and run_id = $2`

// deadLettersWhere returns the conditions of a query without After and Limit.
func (s *Store) deadLettersWhere(q deadletter.Query) (w where, err error) {
	for _, f := range []struct{ column, value string }{
		{"koder_user_id", q.Tenant}, {"run_id", q.Run}, {"stream", q.Stream}, {"reason", q.Reason},
	} {
		if f.value != "" {
			w.and(f.column+" = ?", f.value)
		}
	}
	if q.Names != nil {
		ids, err := s.d.IDs(q.Names)
		if err != nil {
			return w, err
		}
		w.and(s.d.AnyID, ids)
	}
	if q.Prefix != "" {
		least, greatest, err := deadletter.Range(q.Prefix)
		if err != nil {
			return w, err
		}
		w.and("id between ? and ?", least, greatest)
	}
	if !q.Since.IsZero() {
		w.and("buried_at >= ?", s.d.Clock(q.Since))
	}
	if !q.Before.IsZero() {
		w.and("buried_at < ?", s.d.Clock(q.Before))
	}
	return w, nil
}

// FindDeadLetters returns dead letters, newest first. It is for operators and crosses tenants.
func (s *Store) FindDeadLetters(ctx context.Context, q deadletter.Query) ([]deadletter.Stored, error) {
	found, err := s.findDeadLetters(ctx, q)
	if err != nil {
		return nil, s.wrap(err, "read dead letters")
	}
	return found, nil
}

func (s *Store) findDeadLetters(ctx context.Context, q deadletter.Query) ([]deadletter.Stored, error) {
	w, err := s.deadLettersWhere(q)
	if err != nil {
		return nil, err
	}
	if l := q.After; l != nil {
		ids, err := deadletter.IDs([]string{l.Name})
		if err != nil {
			return nil, err
		}
		w.and("(buried_at, stream, position, seq, id) < (?, ?, ?, ?, ?)", s.d.Clock(l.Since), l.Stream,
			s.d.Position(l.Position), int64(l.Seq), ids[0])
	}
	body := "null"
	if q.Bodies {
		body = "body"
	}
	w.args = append(w.args, q.Limit)
	scan := func(scan Scan) (deadletter.Stored, error) { return scanDeadLetter(scan, q.Bodies) }
	return list(ctx, s, EveryTenant, scan, `
		select id, stream, cast(position as text), seq, coalesce(koder_user_id, ''), coalesce(run_id, ''), subject, headers, `+body+`,
			octet_length(body), reason, detail, buried_at, tries, tried_at, last_error
		from agent_dead_letters`+w.text()+`
		order by buried_at desc, stream desc, agent_dead_letters.position desc, seq desc, id desc limit $`+strconv.Itoa(len(w.args)), w.args...)
}

func scanDeadLetter(scan Scan, bodies bool) (l deadletter.Stored, err error) {
	var id, headers []byte
	var position string
	err = scan(&id, &l.Stream, &position, &l.Seq, &l.Key.Tenant, &l.Key.Run, &l.Subject, &headers, &l.Body, &l.Size,
		&l.Reason, &l.Detail, timeIn{&l.Since}, &l.Tries, timeIn{&l.Tried}, &l.Error)
	if err != nil {
		return l, err
	}
	if l.Body == nil && bodies {
		l.Body = []byte{}
	}
	l.Name, l.Header = hex.EncodeToString(id), persister.ParseHeaderBytes(headers)
	l.Position, err = strconv.ParseUint(position, 10, 64)
	return l, err
}

// CountDeadLetters returns the number of dead letters by reason. It ignores After, Limit and Bodies.
func (s *Store) CountDeadLetters(ctx context.Context, q deadletter.Query) (map[string]int, error) {
	counts := make(map[string]int)
	w, err := s.deadLettersWhere(q)
	if err == nil {
		err = s.db.Read(ctx, EveryTenant, func(scan Scan) error {
			var reason string
			var n int
			err := scan(&reason, &n)
			counts[reason] = n
			return err
		}, `select reason, count(*) from agent_dead_letters`+w.text()+` group by reason`, w.args...)
	}
	if err != nil {
		return nil, s.wrap(err, "count dead letters")
	}
	return counts, nil
}

// DeadLetters returns the newest dead letters, newest first, at most limit of them. It is for operators and crosses
// tenants.
func (s *Store) DeadLetters(ctx context.Context, limit int) ([]persister.DeadLetter, error) {
	found, err := s.FindDeadLetters(ctx, deadletter.Query{Limit: limit, Bodies: true})
	return deadletter.Contents(found), err
}

// DropDeadLetters removes dead letters and returns the number of those that existed.
func (s *Store) DropDeadLetters(ctx context.Context, names []string) (n int, err error) {
	var w where
	ids, err := s.d.IDs(names)
	if err == nil {
		w.and(s.d.AnyID, ids)
		n, err = s.exec(ctx, `delete from agent_dead_letters`+w.text(), w.args...)
	}
	if err != nil {
		return 0, s.wrap(err, "drop %d dead letters", len(names))
	}
	return n, nil
}

// NoteTries counts failed tries. Dead letters that do not exist are skipped.
func (s *Store) NoteTries(ctx context.Context, failed []deadletter.FailedTry) error {
	names := make([]string, len(failed))
	for i := range failed {
		names[i] = failed[i].Name
	}
	ids, err := deadletter.IDs(names)
	if err == nil {
		err = s.db.Within(ctx, EveryTenant, func(tx Tx) error {
			for i := range failed {
				if _, err := tx.Exec(ctx, `update agent_dead_letters set tries = tries + 1, tried_at = `+s.d.Now+`, last_error = $1
					where id = $2`, persister.Text(failed[i].Error), ids[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return s.wrap(err, "note %d tries of dead letters", len(failed))
	}
	return nil
}

// RemoveDeadLetters removes the dead letters of a run, or of a whole tenant when Run is "", and returns their number.
func (s *Store) RemoveDeadLetters(ctx context.Context, key schema.RunKey) (int, error) {
	text, args := removeDeadLetters, []any{key.Tenant, key.Run}
	if key.Run == "" {
		text, args = `delete from agent_dead_letters where koder_user_id = $1`, args[:1]
	}
	n, err := s.exec(ctx, text, args...)
	if err != nil {
		return 0, s.wrap(err, "remove dead letters of %s", key)
	}
	return n, nil
}
