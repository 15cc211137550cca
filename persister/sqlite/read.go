package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"agentstream/persister"
	"agentstream/schema"
)

// Head returns the newest position stored of a run, and the owner of a lane ("" is the run itself); the zero Head
// when the tenant has no such run. Head.Stored is 0, because only the log knows positions in the log.
func (s *Store) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	var h schema.Head
	var epoch string
	err := s.read.QueryRowContext(ctx, `
		select r.run_day, r.state, r.last_seq, r.last_id, coalesce(l.owner, ''), coalesce(l.epoch, '0')
		from agent_runs r left join agent_run_lanes l
			on l.koder_user_id = r.koder_user_id and l.run_id = r.id and l.lane = ?3
		where r.koder_user_id = ?1 and r.id = ?2 and r.deleted_at is null`, key.Tenant, key.Run, lane).
		Scan(&h.Day, &h.State, &h.Last, &h.LastID, &h.Lane.Owner, &epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return schema.Head{}, nil
	}
	if err == nil {
		h.Lane.Epoch, err = strconv.ParseUint(epoch, 10, 64)
	}
	if err != nil {
		return schema.Head{}, fmt.Errorf("sqlite: head of run %s: %w", key, err)
	}
	return h, nil
}

// Packs iterates over the run's events with after < seq ≤ through in order, in packs as of persister.Walk. Rows begin
// after the run's floor, so the first pack may begin later than after+1. For an unknown run it yields nothing.
// Between two packs it holds no connection.
func (s *Store) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		day, floor, err := s.begins(ctx, key)
		if err != nil {
			yield(schema.Pack{}, err)
			return
		}
		if day == "" {
			return
		}
		for p, err := range persister.Walk(ctx, rows{s}, key, day, max(after, floor), through) {
			if !yield(p, err) {
				return
			}
		}
	}
}

// begins returns the day of a run, "" when there is no such run, and the floor above which its rows are.
func (s *Store) begins(ctx context.Context, key schema.RunKey) (day string, floor schema.Seq, err error) {
	err = s.read.QueryRowContext(ctx, `select run_day, floor_seq from agent_runs where koder_user_id = ? and id = ? and deleted_at is null`,
		key.Tenant, key.Run).Scan(&day, &floor)
	if errors.Is(err, sql.ErrNoRows) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("sqlite: place of run %s: %w", key, err)
	}
	return day, floor, nil
}

// rows implements persister.Rows.
type rows struct{ s *Store }

// Page stops reading when the page has enough bytes: rows are read one by one.
func (r rows) Page(ctx context.Context, key schema.RunKey, _ string, after, through schema.Seq) ([]persister.Line, error) {
	var page []persister.Line
	size := 0
	err := r.each(ctx, func(scan func(...any) error) (bool, error) {
		var l persister.Line
		if err := scan(&l.Seq, &l.Child, &l.Body); err != nil {
			return false, err
		}
		page = append(page, l)
		size += len(l.Body)
		return size < persister.PageBytes, nil
	}, `select seq, coalesce(child_id, ''), line from agent_run_events
		where koder_user_id = ? and run_id = ? and seq > ? and seq <= ? order by seq limit ?`,
		key.Tenant, key.Run, int64(after), int64(through), persister.PageRows)
	if err != nil {
		return nil, fmt.Errorf("sqlite: read run %s after %d: %w", key, after, err)
	}
	return page, nil
}

func (r rows) Frames(ctx context.Context, key schema.RunKey, _ string, through schema.Seq) ([]persister.Frame, error) {
	var frames []persister.Frame
	err := r.each(ctx, func(scan func(...any) error) (bool, error) {
		var f persister.Frame
		if err := scan(&f.Seq, &f.Type, &f.Body); err != nil {
			return false, err
		}
		frames = append(frames, f)
		return true, nil
	}, `select seq, type, line from agent_run_events
		where koder_user_id = ? and run_id = ? and seq <= ?
			and type in ('run.lifecycle', 'command.message') and child_id is null
			and type in ('run.lifecycle', 'command.message', 'message.start', 'message.end') -- which the index is of
		order by seq`, key.Tenant, key.Run, int64(through))
	if err != nil {
		return nil, fmt.Errorf("sqlite: read frames of run %s: %w", key, err)
	}
	return frames, nil
}

func (r rows) each(ctx context.Context, fn func(scan func(...any) error) (bool, error), query string, args ...any) error {
	result, err := r.s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = result.Close() }()
	for result.Next() {
		if more, err := fn(result.Scan); err != nil || !more {
			return err
		}
	}
	return result.Err()
}
