package sqlite

import (
	"context"
	"errors"
	"fmt"

	"agentstream/persister"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// runRewriter implements sqlstore.RunRewriter.
type runRewriter struct {
	tx  sqlstore.Tx
	key schema.RunKey
}

// Rewriter implements sqlstore.DB.
func (d database) Rewriter(_ context.Context, tx sqlstore.Tx, key schema.RunKey, _ string) (sqlstore.RunRewriter, error) {
	return runRewriter{tx, key}, nil
}

// Event replaces a row, and what is kept of a start of a message beside it.
func (r runRewriter) Event(ctx context.Context, e *persister.Rewritten) error {
	if !e.Gone {
		n, err := r.tx.Exec(ctx, `update agent_run_events set line = $4 where koder_user_id = $1 and run_id = $2 and seq = $3`,
			r.key.Tenant, r.key.Run, int64(e.Seq), string(e.Line))
		if err == nil && n != 1 {
			err = fmt.Errorf("event %d: %w", e.Seq, persister.ErrMoved)
		}
		if err != nil {
			return err
		}
	}
	if e.Type != schema.TypeMessageStart {
		return nil
	}
	var model any
	if raw := jsonscan.Fields(nil).Read(e.Payload).Raw("model"); jsonscan.IsString(raw) {
		model = jsonscan.DecodeString(raw)
	}
	_, err := r.tx.Exec(ctx, `update agent_run_models set model = substr($5, 1, 200)
		where koder_user_id = $1 and run_id = $2 and lane = $3 and seq = $4`,
		r.key.Tenant, r.key.Run, e.Child, int64(e.Seq), model)
	return err
}

// Finish replaces the models of starts of messages, which stay when these expire.
func (r runRewriter) Finish(ctx context.Context, text func(string) string) error {
	rows, err := r.tx.(within).tx.QueryContext(ctx, `select distinct model from agent_run_models
		where koder_user_id = ? and run_id = ? and model is not null`, r.key.Tenant, r.key.Run)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var models []string
	for rows.Next() {
		var model string
		if err := rows.Scan(&model); err != nil {
			return err
		}
		models = append(models, model)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, model := range models {
		if now := text(model); now != model {
			if _, err := r.tx.Exec(ctx, `update agent_run_models set model = $4 where koder_user_id = $1 and run_id = $2 and model = $3`,
				r.key.Tenant, r.key.Run, model, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// ErrInUse reports that the file is in use, so that what it held before could not be taken out of it.
var ErrInUse = errors.New("the file is in use")

// Vacuum writes the file again, without what rows held before, and empties the log beside it. The disk needs room for the
// file twice. The error wraps ErrInUse when another process reads or writes it.
func (s *Store) Vacuum(ctx context.Context) error {
	if err := s.closeStatements(); err != nil {
		return fmt.Errorf("sqlite: vacuum: %w", err)
	}
	if _, err := s.write.ExecContext(ctx, `vacuum`); err != nil {
		return fmt.Errorf("sqlite: vacuum: %w: %w", ErrInUse, err)
	}
	var busy, logged, moved int
	err := s.write.QueryRowContext(ctx, `pragma wal_checkpoint(truncate)`).Scan(&busy, &logged, &moved)
	if err == nil && busy != 0 {
		err = ErrInUse
	}
	if err != nil {
		return fmt.Errorf("sqlite: empty the log of the file: %w", err)
	}
	return nil
}
