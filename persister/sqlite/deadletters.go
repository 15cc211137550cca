package sqlite

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"agentstream/persister"
	"agentstream/persister/deadletter"
)

// where collects conditions and their arguments.
type where struct {
	conditions []string
	args       []any
}

func (w *where) and(condition string, args ...any) {
	w.conditions = append(w.conditions, condition)
	w.args = append(w.args, args...)
}

func (w *where) text() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " where " + strings.Join(w.conditions, " and ")
}

// deadLettersWhere returns the conditions of a query without After and Limit.
func deadLettersWhere(q deadletter.Query) (w where, err error) {
	for _, f := range []struct{ column, value string }{
		{"koder_user_id", q.Tenant}, {"run_id", q.Run}, {"stream", q.Stream}, {"reason", q.Reason},
	} {
		if f.value != "" {
			w.and(f.column+" = ?", f.value)
		}
	}
	if q.Names != nil {
		ids, err := hexes(q.Names)
		if err != nil {
			return w, err
		}
		w.and("id in (select unhex(value) from json_each(?))", ids)
	}
	if q.Prefix != "" {
		least, greatest, err := deadletter.Range(q.Prefix)
		if err != nil {
			return w, err
		}
		w.and("id between ? and ?", least, greatest)
	}
	if !q.Since.IsZero() {
		w.and("buried_at >= ?", q.Since.UTC().Format(updatedLayout))
	}
	if !q.Before.IsZero() {
		w.and("buried_at < ?", q.Before.UTC().Format(updatedLayout))
	}
	return w, nil
}

// hexes returns checked names as a JSON list, so that one statement takes any number.
func hexes(names []string) (string, error) {
	if _, err := deadletter.IDs(names); err != nil {
		return "", err
	}
	list, err := json.Marshal(names)
	return string(list), err
}

// FindDeadLetters returns dead letters, newest first. It is for operators and crosses tenants.
func (s *Store) FindDeadLetters(ctx context.Context, q deadletter.Query) ([]deadletter.Stored, error) {
	deadLetters, err := s.findDeadLetters(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("sqlite: read dead letters: %w", err)
	}
	return deadLetters, nil
}

func (s *Store) findDeadLetters(ctx context.Context, q deadletter.Query) (deadLetters []deadletter.Stored, err error) {
	w, err := deadLettersWhere(q)
	if err != nil {
		return nil, err
	}
	if l := q.After; l != nil {
		ids, err := deadletter.IDs([]string{l.Name})
		if err != nil {
			return nil, err
		}
		w.and("(buried_at, stream, position, seq, id) < (?, ?, ?, ?, ?)",
			l.Since.UTC().Format(updatedLayout), l.Stream, fmt.Sprintf("%020d", l.Position), int64(l.Seq), ids[0])
	}
	body := "null"
	if q.Bodies {
		body = "body"
	}
	err = rows{s}.each(ctx, func(scan func(...any) error) (bool, error) {
		l, err := scanDeadLetter(scan, q.Bodies)
		deadLetters = append(deadLetters, l)
		return true, err
	}, `select id, stream, position, seq, coalesce(koder_user_id, ''), coalesce(run_id, ''), subject, headers, `+body+`, length(body),
		reason, detail, buried_at, tries, coalesce(tried_at, ''), last_error
		from agent_dead_letters`+w.text()+` order by buried_at desc, stream desc, position desc, seq desc, id desc limit ?`,
		append(w.args, q.Limit)...)
	return deadLetters, err
}

func scanDeadLetter(scan func(...any) error, bodies bool) (l deadletter.Stored, err error) {
	var id, headers []byte
	var position, since, tried string
	err = scan(&id, &l.Stream, &position, &l.Seq, &l.Key.Tenant, &l.Key.Run, &l.Subject, &headers, &l.Body, &l.Size,
		&l.Reason, &l.Detail, &since, &l.Tries, &tried, &l.Error)
	if err != nil {
		return l, err
	}
	if l.Body == nil && bodies {
		l.Body = []byte{}
	}
	l.Name, l.Header = hex.EncodeToString(id), persister.ParseHeaderBytes(headers)
	if l.Position, err = strconv.ParseUint(position, 10, 64); err != nil {
		return l, err
	}
	if l.Since, err = time.Parse(time.RFC3339Nano, since); err == nil && tried != "" {
		l.Tried, err = time.Parse(time.RFC3339Nano, tried)
	}
	return l, err
}

// CountDeadLetters returns the number of dead letters by reason. It ignores After, Limit and Bodies.
func (s *Store) CountDeadLetters(ctx context.Context, q deadletter.Query) (map[string]int, error) {
	counts := make(map[string]int)
	w, err := deadLettersWhere(q)
	if err == nil {
		err = rows{s}.each(ctx, func(scan func(...any) error) (bool, error) {
			var reason string
			var n int
			err := scan(&reason, &n)
			counts[reason] = n
			return true, err
		}, `select reason, count(*) from agent_dead_letters`+w.text()+` group by reason`, w.args...)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: count dead letters: %w", err)
	}
	return counts, nil
}

// DropDeadLetters removes dead letters and returns the number of those that existed.
func (s *Store) DropDeadLetters(ctx context.Context, names []string) (int, error) {
	list, err := hexes(names)
	if err != nil {
		return 0, fmt.Errorf("sqlite: drop dead letters: %w", err)
	}
	done, err := s.write.ExecContext(ctx, `delete from agent_dead_letters where id in (select unhex(value) from json_each(?))`, list)
	if err != nil {
		return 0, fmt.Errorf("sqlite: drop %d dead letters: %w", len(names), err)
	}
	n, err := done.RowsAffected()
	return int(n), err
}

// NoteTries counts failed tries. Dead letters that do not exist are skipped.
func (s *Store) NoteTries(ctx context.Context, failed []deadletter.FailedTry) error {
	names := make([]string, len(failed))
	for i := range failed {
		names[i] = failed[i].Name
	}
	ids, err := deadletter.IDs(names)
	if err == nil {
		err = s.noteTries(ctx, ids, failed)
	}
	if err != nil {
		return fmt.Errorf("sqlite: note %d tries of dead letters: %w", len(failed), err)
	}
	return nil
}

func (s *Store) noteTries(ctx context.Context, ids [][]byte, failed []deadletter.FailedTry) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	for i := range failed {
		if _, err := tx.ExecContext(ctx, `update agent_dead_letters set tries = tries + 1,
			tried_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), last_error = ? where id = ?`, persister.Text(failed[i].Error), ids[i]); err != nil {
			return err
		}
	}
	return tx.Commit()
}

const insertDeadLetter = `
insert into agent_dead_letters (id, stream, position, seq, koder_user_id, run_id, subject, headers, body, reason, detail)
values (?, ?, ?, ?, nullif(?, ''), nullif(?, ''), ?, coalesce(?, x''), coalesce(?, x''), ?, ?) on conflict do nothing`

// PutDeadLetters implements deadletter.Redriver.
func (s *Store) PutDeadLetters(ctx context.Context, deadLetters []persister.DeadLetter) error {
	_, err := s.do(ctx, &work{Transfer: &persister.Transfer{DeadLetters: deadLetters}})
	return err
}

// putDeadLetters stores dead letters.
func (tx *transaction) putDeadLetters(ctx context.Context, deadLetters []persister.DeadLetter) error {
	for i := range deadLetters {
		l := &deadLetters[i]
		body := l.Body
		if body == nil {
			body = []byte{}
		}
		if _, err := tx.exec(ctx, stInsertDeadLetter,
			l.ID(), persister.Text(l.Stream), fmt.Sprintf("%020d", l.Position), int64(l.Seq), l.Key.Tenant, l.Key.Run,
			persister.Text(l.Subject), l.HeaderBytes(), body, l.Reason, persister.Text(l.Detail)); err != nil {
			return err
		}
	}
	return nil
}

// DeadLetters returns the newest dead letters, newest first, at most limit of them. It is for
// operators and crosses tenants.
func (s *Store) DeadLetters(ctx context.Context, limit int) ([]persister.DeadLetter, error) {
	deadLetters, err := s.FindDeadLetters(ctx, deadletter.Query{Limit: limit, Bodies: true})
	return deadletter.Contents(deadLetters), err
}
