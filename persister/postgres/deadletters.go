package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/persister/deadletter"
)

// where collects conditions and their arguments. A condition has %s in place of each argument, in their order.
type where struct {
	conditions []string
	args       []any
}

func (w *where) and(condition string, args ...any) {
	numbers := make([]any, len(args))
	for i, arg := range args {
		w.args = append(w.args, arg)
		numbers[i] = "$" + strconv.Itoa(len(w.args))
	}
	w.conditions = append(w.conditions, fmt.Sprintf(condition, numbers...))
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
			w.and(f.column+" = %s", f.value)
		}
	}
	if q.Names != nil {
		ids, err := deadletter.IDs(q.Names)
		if err != nil {
			return w, err
		}
		w.and("id = any(%s::bytea[])", ids)
	}
	if q.Prefix != "" {
		least, greatest, err := deadletter.Range(q.Prefix)
		if err != nil {
			return w, err
		}
		w.and("id between %s and %s", least, greatest)
	}
	if !q.Since.IsZero() {
		w.and("buried_at >= %s", q.Since)
	}
	if !q.Before.IsZero() {
		w.and("buried_at < %s", q.Before)
	}
	return w, nil
}

// FindDeadLetters returns dead letters, newest first. It is for operators and crosses tenants.
func (s *Store) FindDeadLetters(ctx context.Context, q deadletter.Query) ([]deadletter.Stored, error) {
	deadLetters, err := s.findDeadLetters(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("postgres: read dead letters: %w", err)
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
		w.and("(buried_at, stream, position, seq, id) < (%s, %s, %s::text::numeric, %s, %s)",
			l.Since, l.Stream, strconv.FormatUint(l.Position, 10), int64(l.Seq), ids[0])
	}
	body := "null::bytea"
	if q.Bodies {
		body = "body"
	}
	read := func(result pgx.Rows) error {
		deadLetters, err = pgx.CollectRows(result, scanDeadLetter)
		return err
	}
	w.args = append(w.args, q.Limit)
	err = s.query(ctx, everyTenant, read, `
		select id, stream, position::text, seq, coalesce(koder_user_id, ''), coalesce(run_id, ''), subject, headers, `+body+`, octet_length(body),
			reason, detail, buried_at, tries, tried_at, last_error
		from agent_dead_letters`+w.text()+`
		order by buried_at desc, stream desc, agent_dead_letters.position desc, seq desc, id desc limit $`+strconv.Itoa(len(w.args)), w.args...)
	return deadLetters, err
}

func scanDeadLetter(row pgx.CollectableRow) (l deadletter.Stored, err error) {
	var id, headers []byte
	var position string
	var tried *time.Time
	err = row.Scan(&id, &l.Stream, &position, &l.Seq, &l.Key.Tenant, &l.Key.Run, &l.Subject, &headers, &l.Body, &l.Size,
		&l.Reason, &l.Detail, &l.Since, &l.Tries, &tried, &l.Error)
	if err != nil {
		return l, err
	}
	if tried != nil {
		l.Tried = tried.UTC()
	}
	l.Name, l.Header, l.Since = hex.EncodeToString(id), persister.ParseHeaderBytes(headers), l.Since.UTC()
	l.Position, err = strconv.ParseUint(position, 10, 64)
	return l, err
}

// CountDeadLetters returns the number of dead letters by reason. It ignores After, Limit and Bodies.
func (s *Store) CountDeadLetters(ctx context.Context, q deadletter.Query) (map[string]int, error) {
	counts := make(map[string]int)
	w, err := deadLettersWhere(q)
	if err == nil {
		var reason string
		var n int
		err = s.query(ctx, everyTenant, func(result pgx.Rows) error {
			_, err := pgx.ForEachRow(result, []any{&reason, &n}, func() error { counts[reason] = n; return nil })
			return err
		}, `select reason, count(*) from agent_dead_letters`+w.text()+` group by reason`, w.args...)
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: count dead letters: %w", err)
	}
	return counts, nil
}

// DropDeadLetters removes dead letters and returns the number of those that existed.
func (s *Store) DropDeadLetters(ctx context.Context, names []string) (n int, err error) {
	ids, err := deadletter.IDs(names)
	if err != nil {
		return 0, fmt.Errorf("postgres: drop dead letters: %w", err)
	}
	err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `delete from agent_dead_letters where id = any($1::bytea[])`, ids)
		n = int(tag.RowsAffected())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: drop %d dead letters: %w", len(names), err)
	}
	return n, nil
}

// NoteTries counts failed tries. Dead letters that do not exist are skipped.
func (s *Store) NoteTries(ctx context.Context, failed []deadletter.FailedTry) error {
	names, errs := make([]string, len(failed)), make([]string, len(failed))
	for i := range failed {
		names[i], errs[i] = failed[i].Name, persister.Text(failed[i].Error)
	}
	ids, err := deadletter.IDs(names)
	if err == nil {
		err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `update agent_dead_letters l set tries = l.tries + 1, tried_at = now(), last_error = x.error
				from unnest($1::bytea[], $2::text[]) as x(id, error) where l.id = x.id`, ids, errs)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("postgres: note %d tries of dead letters: %w", len(failed), err)
	}
	return nil
}

const insertDeadLetters = `
insert into agent_dead_letters (id, stream, position, seq, koder_user_id, run_id, subject, headers, body, reason, detail)
select id, stream, position::numeric, seq, nullif(t, ''), nullif(r, ''), subject, headers, body, reason, detail
from unnest($1::bytea[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[],
	$9::bytea[], $10::text[], $11::text[]) as x(id, stream, position, seq, t, r, subject, headers, body, reason, detail)
order by id
on conflict do nothing`

// PutDeadLetters implements deadletter.Redriver.
func (s *Store) PutDeadLetters(ctx context.Context, deadLetters []persister.DeadLetter) error {
	_, err := s.do(ctx, &work{Transfer: &persister.Transfer{DeadLetters: deadLetters}})
	return err
}

// putDeadLetters stores dead letters, if there are any.
func putDeadLetters(ctx context.Context, tx pgx.Tx, deadLetters []persister.DeadLetter) error {
	if len(deadLetters) == 0 {
		return nil
	}
	var id, headers, body [][]byte
	var stream, position, tenant, run, subject, reason, detail []string
	var seq []int64
	for i := range deadLetters {
		l := &deadLetters[i]
		id, headers = append(id, l.ID()), append(headers, l.HeaderBytes())
		if body = append(body, l.Body); l.Body == nil {
			body[i] = []byte{}
		}
		stream, position = append(stream, persister.Text(l.Stream)), append(position, strconv.FormatUint(l.Position, 10))
		tenant, run = append(tenant, l.Key.Tenant), append(run, l.Key.Run)
		subject, reason = append(subject, persister.Text(l.Subject)), append(reason, l.Reason)
		detail, seq = append(detail, persister.Text(l.Detail)), append(seq, int64(l.Seq))
	}
	_, err := tx.Exec(ctx, insertDeadLetters, id, stream, position, seq, tenant, run, subject, headers, body, reason, detail)
	return err
}

// DeadLetters returns the newest dead letters, newest first, at most limit of them. It is for
// operators and crosses tenants.
func (s *Store) DeadLetters(ctx context.Context, limit int) ([]persister.DeadLetter, error) {
	deadLetters, err := s.FindDeadLetters(ctx, deadletter.Query{Limit: limit, Bodies: true})
	return deadletter.Contents(deadLetters), err
}
