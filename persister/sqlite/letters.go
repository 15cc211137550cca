package sqlite

import (
	"context"
	"fmt"

	"agentstream/persister"
)

const insertDeadLetter = `
insert into agent_dead_letters (id, stream, position, seq, koder_user_id, run_id, subject, headers, body, reason, detail)
values (?, ?, ?, ?, nullif(?, ''), nullif(?, ''), ?, coalesce(?, x''), coalesce(?, x''), ?, ?) on conflict do nothing`

// PutDeadLetters implements persister.Redriver.
func (s *Store) PutDeadLetters(ctx context.Context, letters []persister.DeadLetter) error {
	_, err := s.do(ctx, &work{Transfer: &persister.Transfer{Letters: letters}})
	return err
}

// putDeadLetters keeps letters.
func (tx *transaction) putDeadLetters(ctx context.Context, letters []persister.DeadLetter) error {
	for i := range letters {
		l := &letters[i]
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
	letters, err := s.Letters(ctx, persister.DeadLetterQuery{Limit: limit, Bodies: true})
	return persister.Contents(letters), err
}
