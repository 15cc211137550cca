package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/schema"
)

// Head returns the newest position stored of a run, and the owner of a lane ("" is the run itself);
// the zero Head when the tenant has no such run, or it was deleted. Head.Stored is 0, because only the log knows positions
// in the log. Rows before Head.Last may be missing for a moment while several persisters store a partition.
func (s *Store) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	var h schema.Head
	var day time.Time
	var epoch string
	err := s.queryRow(ctx, key.Tenant, []any{&day, &h.State, &h.Last, &h.LastID, &h.Lane.Owner, &epoch}, `
		select r.run_day, r.state, r.last_seq, r.last_id, coalesce(l.owner, ''), coalesce(l.epoch, 0)::text
		from agent_runs r left join agent_run_lanes l
			on l.koder_user_id = r.koder_user_id and l.run_id = r.id and l.lane = $3
		where r.koder_user_id = $1 and r.id = $2 and r.deleted_at is null`, key.Tenant, key.Run, lane)
	if errors.Is(err, pgx.ErrNoRows) {
		return schema.Head{}, nil
	}
	if err == nil {
		h.Lane.Epoch, err = strconv.ParseUint(epoch, 10, 64)
	}
	if err != nil {
		return schema.Head{}, fmt.Errorf("postgres: head of run %s: %w", key, err)
	}
	h.Day = day.Format(dayLayout)
	return h, nil
}

// Packs iterates over the run's events with after < seq ≤ through in order, in packs as of persister.Walk. Rows begin after
// the run's floor, so the first pack may begin later than after+1. For an unknown run it yields nothing. Between two packs
// it holds no connection.
func (s *Store) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		place, err := s.Place(ctx, key)
		if err != nil {
			yield(schema.Pack{}, err)
			return
		}
		if place.Day == "" || place.Deleted {
			return
		}
		for p, err := range persister.Walk(ctx, rows{s}, key, place.Day, max(after, place.Floor), through) {
			if !yield(p, err) {
				return
			}
		}
	}
}

// rows implements persister.Rows.
type rows struct{ s *Store }

// Page bounds the page by bytes inside the server, so that a page of large events is not sent completely.
func (r rows) Page(ctx context.Context, key schema.RunKey, day string, after, through schema.Seq) ([]persister.Line, error) {
	date, err := time.Parse(dayLayout, day)
	if err != nil {
		return nil, fmt.Errorf("postgres: read run %s: %w", key, err)
	}
	var page []persister.Line
	var l persister.Line
	err = r.s.query(ctx, key.Tenant, func(result pgx.Rows) error {
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

// Frames has the types as literals, so that the planner recognizes the condition of the partial index.
func (r rows) Frames(ctx context.Context, key schema.RunKey, day string, through schema.Seq) ([]persister.Frame, error) {
	date, err := time.Parse(dayLayout, day)
	if err != nil {
		return nil, fmt.Errorf("postgres: read run %s: %w", key, err)
	}
	var frames []persister.Frame
	var f persister.Frame
	err = r.s.query(ctx, key.Tenant, func(result pgx.Rows) error {
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
