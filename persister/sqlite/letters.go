package sqlite

import (
	"context"
	"fmt"

	"agentstream/persister"
)

// Bury implements persister.Store.
func (s *Store) Bury(ctx context.Context, letters []persister.DeadLetter) error {
	if err := s.bury(ctx, letters); err != nil {
		return fmt.Errorf("sqlite: bury %d dead letters: %w", len(letters), err)
	}
	return nil
}

func (s *Store) bury(ctx context.Context, letters []persister.DeadLetter) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	for i := range letters {
		l := &letters[i]
		body := l.Body
		if body == nil {
			body = []byte{}
		}
		if _, err := tx.ExecContext(ctx, `
			insert into agent_dead_letters (id, stream, position, seq, koder_user_id, run_id, subject, headers, body, reason, detail)
			values (?, ?, ?, ?, nullif(?, ''), nullif(?, ''), ?, coalesce(?, x''), coalesce(?, x''), ?, ?) on conflict do nothing`,
			l.ID(), persister.Text(l.Stream), fmt.Sprintf("%020d", l.Position), int64(l.Seq), l.Key.Tenant, l.Key.Run,
			persister.Text(l.Subject), l.HeaderBytes(), body, l.Reason, persister.Text(l.Detail)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// DeadLetters gives the newest dead letters, newest first, at most limit of them. It is for
// operators and crosses tenants.
func (s *Store) DeadLetters(ctx context.Context, limit int) ([]persister.DeadLetter, error) {
	letters, err := s.Letters(ctx, persister.LetterQuery{Limit: limit, Bodies: true})
	return persister.Contents(letters), err
}
