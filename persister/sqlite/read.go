package sqlite

import (
	"context"
	"fmt"

	"agentstream/persister"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// Page implements persister.Rows. It stops reading when the page has enough bytes: rows are read one by one.
func (s *Store) Page(ctx context.Context, key schema.RunKey, _ string, after, through schema.Seq) ([]persister.Line,
	error) {
	var page []persister.Line
	size := 0
	err := s.each(ctx, key.Tenant, func(scan func(...any) error) (bool, error) {
		var l persister.Line
		if err := scan(&l.Seq, &l.Child, &l.Body); err != nil {
			return false, err
		}
		page = append(page, l)
		size += len(l.Body)
		return size < persister.PageBytes, nil
	}, `select seq, coalesce(child_id, ''), line from agent_run_events
		where koder_user_id = ? and run_id = ? and seq > ? + 0 and seq <= ? order by seq limit ?`,
		key.Tenant, key.Run, int64(after), int64(through), persister.PageRows)
	if err != nil {
		return nil, fmt.Errorf("sqlite: read run %s after %d: %w", key, after, err)
	}
	return page, nil
}

// selectFrames has two conditions on the type, each of which an index has: the second that of files of earlier
// programs.
const selectFrames = `
select seq, type, line from agent_run_events
where koder_user_id = ? and run_id = ? and seq <= ?
	and type in ('run.lifecycle', 'command.message') and child_id is null
	and type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
order by seq`

// Frames implements persister.Rows.
func (s *Store) Frames(ctx context.Context, key schema.RunKey, _ string, through schema.Seq) ([]persister.Frame,
	error) {
	var frames []persister.Frame
	err := s.each(ctx, key.Tenant, func(scan func(...any) error) (bool, error) {
		var f persister.Frame
		if err := scan(&f.Seq, &f.Type, &f.Body); err != nil {
			return false, err
		}
		frames = append(frames, f)
		return true, nil
	}, selectFrames, key.Tenant, key.Run, int64(through))
	if err != nil {
		return nil, fmt.Errorf("sqlite: read frames of run %s: %w", key, err)
	}
	return frames, nil
}

// each calls fn for each row of a result, until fn returns false. fn must not read by another statement.
func (s *Store) each(ctx context.Context, tenant string, fn func(scan func(...any) error) (bool, error), query string,
	args ...any) error {
	slot, err := sqlstore.Connection(ctx, s.readers, tenant)
	if err != nil {
		return err
	}
	defer slot.Release()
	result, err := s.read.QueryContext(ctx, query, args...)
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
