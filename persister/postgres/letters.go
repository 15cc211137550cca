package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
)

const insertLetters = `
insert into agent_dead_letters (id, stream, position, seq, koder_user_id, run_id, subject, headers, body, reason, detail)
select id, stream, position::numeric, seq, nullif(t, ''), nullif(r, ''), subject, headers, body, reason, detail
from unnest($1::bytea[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[],
	$9::bytea[], $10::text[], $11::text[]) as x(id, stream, position, seq, t, r, subject, headers, body, reason, detail)
on conflict do nothing`

// Bury implements persister.Store.
func (s *Store) Bury(ctx context.Context, letters []persister.DeadLetter) error {
	var id, headers, body [][]byte
	var stream, position, tenant, run, subject, reason, detail []string
	var seq []int64
	for i := range letters {
		l := &letters[i]
		id, headers = append(id, l.ID()), append(headers, l.HeaderBytes())
		if body = append(body, l.Body); l.Body == nil {
			body[i] = []byte{}
		}
		stream, position = append(stream, persister.Text(l.Stream)), append(position, strconv.FormatUint(l.Position, 10))
		tenant, run = append(tenant, l.Key.Tenant), append(run, l.Key.Run)
		subject, reason = append(subject, persister.Text(l.Subject)), append(reason, l.Reason)
		detail, seq = append(detail, persister.Text(l.Detail)), append(seq, int64(l.Seq))
	}
	err := s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertLetters, id, stream, position, seq, tenant, run, subject, headers, body, reason, detail)
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: bury %d dead letters: %w", len(letters), err)
	}
	return nil
}

// DeadLetters gives the newest dead letters, newest first, at most limit of them. It is for
// operators and crosses tenants.
func (s *Store) DeadLetters(ctx context.Context, limit int) ([]persister.DeadLetter, error) {
	letters, err := s.Letters(ctx, persister.LetterQuery{Limit: limit, Bodies: true})
	return persister.Contents(letters), err
}
