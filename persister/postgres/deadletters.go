package postgres

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
)

const insertDeadLetters = `
insert into agent_dead_letters (id, stream, position, seq, koder_user_id, run_id, subject, headers, body, reason, detail)
select id, stream, position::numeric, seq, nullif(t, ''), nullif(r, ''), subject, headers, body, reason, detail
from unnest($1::bytea[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[],
	$9::bytea[], $10::text[], $11::text[]) as x(id, stream, position, seq, t, r, subject, headers, body, reason, detail)
order by id
on conflict do nothing`

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
	_, err := tx.Exec(ctx, insertDeadLetters, id, stream, position, seq, tenant, run, subject, headers, body, reason,
		detail)
	return err
}
