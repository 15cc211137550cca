package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/schema"
)

// Page implements persister.Rows. It bounds the page by bytes inside the server, so that a page of large events is not
// sent completely.
func (s *Store) Page(ctx context.Context, key schema.RunKey, day string, after, through schema.Seq) ([]persister.Line,
	error) {
	date, err := time.Parse(dayLayout, day)
	if err != nil {
		return nil, fmt.Errorf("postgres: read run %s: %w", key, err)
	}
	var page []persister.Line
	var l persister.Line
	err = s.query(ctx, key.Tenant, func(result pgx.Rows) error {
		_, err := pgx.ForEachRow(result, []any{&l.Seq, &l.Child, &l.Body}, func() error {
			page = append(page, l)
			l.Body = nil
			return nil
		})
		return err
	}, `
		select seq, child, line from (
			select seq, coalesce(child_id, '') as child, line,
				sum(octet_length(line)) over (order by seq rows unbounded preceding) - octet_length(line) as before
			from (select seq, child_id, line from agent_run_events
				where koder_user_id = $1 and run_day = $2 and run_id = $3 and seq > $4 and seq <= $5
				order by seq limit $6) page) sized
		where before < $7 order by seq`,
		key.Tenant, date, key.Run, int64(after), int64(through), persister.PageRows, persister.PageBytes)
	if err != nil {
		return nil, fmt.Errorf("postgres: read run %s after %d: %w", key, after, err)
	}
	return page, nil
}

// Frames implements persister.Rows. It has the types as literals, so that the planner recognizes the condition of the
// partial index.
func (s *Store) Frames(ctx context.Context, key schema.RunKey, day string, through schema.Seq) ([]persister.Frame,
	error) {
	date, err := time.Parse(dayLayout, day)
	if err != nil {
		return nil, fmt.Errorf("postgres: read run %s: %w", key, err)
	}
	var frames []persister.Frame
	var f persister.Frame
	err = s.query(ctx, key.Tenant, func(result pgx.Rows) error {
		_, err := pgx.ForEachRow(result, []any{&f.Seq, &f.Type, &f.Body}, func() error {
			frames = append(frames, f)
			f.Body = nil
			return nil
		})
		return err
	}, `
		select seq, type, line
		from agent_run_events
		where koder_user_id = $1 and run_day = $2 and run_id = $3 and seq <= $4
			and type in ('run.lifecycle', 'command.message') and child_id is null
		order by seq`, key.Tenant, date, key.Run, int64(through))
	if err != nil {
		return nil, fmt.Errorf("postgres: read frames of run %s: %w", key, err)
	}
	return frames, nil
}
