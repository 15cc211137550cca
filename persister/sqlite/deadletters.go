package sqlite

import (
	"context"
	"fmt"

	"agentstream/persister"
)

const insertDeadLetter = `
insert into agent_dead_letters (id, stream, position, seq, koder_user_id, run_id, subject, headers, body, reason, detail)
values (?, ?, ?, ?, nullif(?, ''), nullif(?, ''), ?, coalesce(?, x''), coalesce(?, x''), ?, ?) on conflict do nothing`

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
