package sqlstore

import (
	"context"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// feedPage is the number of events of a feed that are looked at together.
const feedPage = 1000

// feed is one as its row has it.
type feed struct {
	key         schema.RunKey
	day         string
	floor, last schema.Seq
}

// TrimFeeds marks the events of feeds as removed that are older than before, in the way of Expire, and returns the
// number of feeds of which it did. The newest event of each stays, and so does everything behind the first one that is
// not old: of times that are still to come nothing is believed. It costs one index lookup for each tenant.
func (s *Store) TrimFeeds(ctx context.Context, which schema.Feeds, before, now time.Time) (trimmed int, err error) {
	if which.Prefix == "" {
		return 0, nil
	}
	for tenant := ""; ; {
		if tenant, err = s.NextTenant(ctx, tenant); err != nil || tenant == "" {
			return trimmed, err
		}
		feeds, err := s.feeds(ctx, which, tenant)
		if err != nil {
			return trimmed, err
		}
		for _, f := range feeds {
			through, err := s.old(ctx, f, before, now)
			if err != nil {
				return trimmed, err
			}
			if through <= f.floor {
				continue
			}
			if err := s.trim(ctx, f, through, now); err != nil {
				return trimmed, err
			}
			trimmed++
		}
	}
}

// feeds returns those of a tenant that have more than one event and are under no hold.
func (s *Store) feeds(ctx context.Context, which schema.Feeds, tenant string) (feeds []feed, err error) {
	from := which.Prefix
	next := from[:len(from)-1] + string(from[len(from)-1]+1) // of all ids that begin with another prefix, the first behind
	all, err := list(ctx, s, EveryTenant, func(scan Scan) (f feed, err error) {
		f.key.Tenant = tenant
		err = scan(&f.key.Run, dayIn{&f.day}, &f.floor, &f.last)
		return f, err
	}, `select id, run_day, floor_seq, last_seq from agent_runs r where koder_user_id = $1 and id >= $2 and id < $3
		and floor_seq + 1 < last_seq and deleted_at is null and not `+Held+` order by id`, tenant, from, next)
	if err != nil {
		return nil, s.wrap(err, "feeds of %s", tenant)
	}
	for _, f := range all {
		if which.Has(f.key.Run) {
			feeds = append(feeds, f)
		}
	}
	return feeds, nil
}

// old returns the seq up to which the events of a feed are old, its floor for none.
func (s *Store) old(ctx context.Context, f feed, before, now time.Time) (through schema.Seq, err error) {
	day, err := s.d.Day(f.day)
	if err != nil {
		return 0, s.wrap(err, "age of feed %s", f.key)
	}
	type event struct {
		seq schema.Seq
		ts  time.Time
	}
	through = f.floor
	for at := f.floor; ; {
		page, err := list(ctx, s, EveryTenant, func(scan Scan) (e event, err error) {
			err = scan(&e.seq, timeIn{&e.ts})
			return e, err
		}, `select seq, ts from agent_run_events where koder_user_id = $1 and run_day = $2 and run_id = $3 and seq > $4 and seq < $5
			order by seq limit $6`, f.key.Tenant, day, f.key.Run, int64(at), int64(f.last), feedPage)
		if err != nil {
			return 0, s.wrap(err, "age of feed %s", f.key)
		}
		for _, e := range page {
			if at = e.seq; e.ts.Before(before) {
				through = e.seq
			} else if !e.ts.After(now) {
				return through, nil
			}
		}
		if len(page) < feedPage {
			return through, nil
		}
	}
}

// trim marks the events of a feed as removed up to a seq, unless it was deleted or held meanwhile.
func (s *Store) trim(ctx context.Context, f feed, through schema.Seq, now time.Time) error {
	const which = ` from agent_runs r where koder_user_id = $1 and id = $2 and floor_seq < $3 and last_seq > $3 and deleted_at is null and not ` + Held
	err := s.db.Within(ctx, EveryTenant, func(tx Tx) error {
		if err := lock(ctx, tx, s.d.Marks); err != nil {
			return err
		}
		var floor schema.Seq
		found, err := tx.Row(ctx, []any{&floor}, `select floor_seq`+which+s.d.ForUpdate, f.key.Tenant, f.key.Run,
			int64(through))
		if err != nil || !found {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into agent_trash (koder_user_id, run_id, run_day, after_seq, through_seq, uri, why, since)
			select koder_user_id, id, run_day, floor_seq, $3, coalesce(replay_uri, ''), $4, $5`+which,
			f.key.Tenant, f.key.Run, int64(through), persister.ScrapExpired, s.d.Time(now)); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `update agent_runs set floor_seq = $3, expired_seq = $3, replay_uri = null, archived_seq = 0, archived_at = null,
			archived_bytes = 0 where koder_user_id = $1 and id = $2`, f.key.Tenant, f.key.Run, int64(through))
		return err
	})
	if err != nil {
		return s.wrap(err, "trim feed %s", f.key)
	}
	return nil
}
