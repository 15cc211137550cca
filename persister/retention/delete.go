package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Forgetting marks runs of a store as deleted.
type Forgetting interface {
	Forget(ctx context.Context, key schema.RunKey, head schema.Head, now time.Time) (day string, err error)
	ScrapsOf(ctx context.Context, key schema.RunKey) ([]persister.Scrap, error)
	RunIDs(ctx context.Context, tenant, after string, limit int) ([]string, error)
	Remains(ctx context.Context, key schema.RunKey) (persister.Remains, error)
}

// Settings is the configuration of tenants in a store.
type Settings interface {
	SetOverride(ctx context.Context, tenant string, o persister.Override) error
	Holds(ctx context.Context, tenant string) ([]persister.Hold, error)
}

// ErrUnknown reports that neither the store nor the log has anything of what was to be deleted.
var ErrUnknown = errors.New("nothing is known of it")

// Deleted counts what was removed, and what was found to be left afterwards.
type Deleted struct {
	Runs      int
	Events    int64
	Blobs     int
	Messages  int
	Keys      int
	Letters   int
	Left      persister.Remains
	LeftInLog int // runs that have messages or blobs in the log
}

// Clean reports whether nothing is left but rows marked as deleted.
func (d Deleted) Clean() bool { return d.Left.Nothing() && d.LeftInLog == 0 }

// Deleter removes runs everywhere.
type Deleter struct {
	cfg      Config
	store    Forgetting
	settings Settings
}

// NewDeleter returns a Deleter. store and settings must be the same store as in the config. The log and the blobs
// must be those of the deployment.
func NewDeleter(cfg Config, store Forgetting, settings Settings) (*Deleter, error) {
	if store == nil || settings == nil || cfg.Trash == nil || cfg.Tombstones == nil || cfg.Log == nil {
		return nil, errors.New("retention: a deleter needs a store and the log")
	}
	return &Deleter{cfg: cfg.withDefaults(), store: store, settings: settings}, nil
}

// Run removes one run. The error wraps persister.ErrHeld when the run is under a hold, and ErrUnknown when there is
// no such run. After another error it can be called again, and continues.
func (d *Deleter) Run(ctx context.Context, key schema.RunKey) (Deleted, error) {
	var out Deleted
	if err := key.Validate(); err != nil {
		return out, fmt.Errorf("retention: delete: %w", err)
	}
	found, err := d.one(ctx, key, &out)
	if err == nil && !found && out.Letters == 0 {
		err = fmt.Errorf("retention: delete run %s: %w", key, ErrUnknown)
	}
	if err == nil {
		err = d.verify(ctx, key, &out)
	}
	return out, err
}

// one marks a run and removes all of it but the mark.
func (d *Deleter) one(ctx context.Context, key schema.RunKey, out *Deleted) (found bool, err error) {
	var day string
	head, err := d.cfg.Log.Head(ctx, key)
	if err == nil {
		day, err = d.store.Forget(ctx, key, head, d.cfg.Now())
		found = day != ""
	}
	if err != nil {
		return false, fmt.Errorf("retention: delete run %s: %w", key, err)
	}
	var r Report
	w := removal{Config: &d.cfg, report: &r}
	defer func() {
		out.Events += r.Events
		out.Blobs += r.Blobs
		out.Messages += r.Messages
		out.Keys += r.Keys
	}()
	if !found { // there may be blobs of a run that was about to begin
		held, err := d.cfg.Log.Holding(ctx, []schema.RunKey{key})
		if err == nil && len(held) > 0 {
			r.Messages, r.Keys, err = d.cfg.Log.Purge(ctx, key, schema.MaxSeq)
		}
		if err != nil {
			return false, fmt.Errorf("retention: delete run %s: %w", key, err)
		}
	}
	if found {
		out.Runs++
		r.Messages, r.Keys, err = d.cfg.Log.Purge(ctx, key, schema.MaxSeq)
		if err != nil {
			return found, fmt.Errorf("retention: delete run %s: %w", key, err)
		}
		scraps, err := d.store.ScrapsOf(ctx, key)
		if err == nil && len(scraps) > 0 {
			err = w.scraps(ctx, scraps)
		}
		if err != nil {
			return found, fmt.Errorf("retention: delete run %s: %w", key, err)
		}
	}
	n, err := d.cfg.Tombstones.RemoveDeadLetters(ctx, key)
	if out.Letters += n; err == nil && found && d.cfg.Blobs != nil {
		n, err = d.cfg.Blobs.Wipe(ctx, key, day)
		r.Blobs += n
	}
	if err != nil {
		return found, fmt.Errorf("retention: delete run %s: %w", key, err)
	}
	return found, nil
}

// Tenant removes all runs of a tenant, its settings and its dead letters. It calls progress after each run, unless it
// is nil. When anything of the tenant is under a hold it removes nothing, and the error wraps persister.ErrHeld.
func (d *Deleter) Tenant(ctx context.Context, tenant string, progress func(done int)) (Deleted, error) {
	var out Deleted
	if err := schema.ValidTenant(tenant); err != nil {
		return out, fmt.Errorf("retention: delete: %w", err)
	}
	holds, err := d.settings.Holds(ctx, tenant)
	if err == nil && len(holds) > 0 {
		err = fmt.Errorf("%d holds, the first on run %q (%s): %w", len(holds), holds[0].Key.Run, holds[0].Reason,
			persister.ErrHeld)
	}
	if err != nil {
		return out, fmt.Errorf("retention: delete tenant %s: %w", tenant, err)
	}
	err = d.each(ctx, tenant, func(run string) error {
		_, err := d.one(ctx, schema.RunKey{Tenant: tenant, Run: run}, &out)
		if progress != nil {
			progress(out.Runs)
		}
		return err
	})
	if err != nil {
		return out, err
	}
	all := schema.RunKey{Tenant: tenant}
	n, err := d.cfg.Tombstones.RemoveDeadLetters(ctx, all)
	out.Letters += n
	if err == nil && d.cfg.Blobs != nil {
		n, err = d.cfg.Blobs.Wipe(ctx, all, "")
		out.Blobs += n
	}
	if err == nil {
		err = d.settings.SetOverride(ctx, tenant, persister.Override{})
	}
	if err != nil {
		return out, fmt.Errorf("retention: delete tenant %s: %w", tenant, err)
	}
	return out, d.verify(ctx, all, &out)
}

// each iterates over the runs that the store knows, and then over those that only the log knows.
func (d *Deleter) each(ctx context.Context, tenant string, fn func(run string) error) error {
	for after := ""; ; {
		ids, err := d.store.RunIDs(ctx, tenant, after, lookRuns)
		if err != nil {
			return fmt.Errorf("retention: delete tenant %s: %w", tenant, err)
		}
		for _, id := range ids {
			if err := fn(id); err != nil {
				return err
			}
		}
		if len(ids) < lookRuns {
			break
		}
		after = ids[len(ids)-1]
	}
	ids, err := d.cfg.Log.RunsOf(ctx, tenant)
	if err != nil {
		return fmt.Errorf("retention: delete tenant %s: %w", tenant, err)
	}
	for _, id := range ids {
		if err := fn(id); err != nil {
			return err
		}
	}
	return nil
}

// verify counts what is left everywhere. Blobs that could not be removed count as scraps.
func (d *Deleter) verify(ctx context.Context, key schema.RunKey, out *Deleted) (err error) {
	if out.Left, err = d.store.Remains(ctx, key); err != nil {
		return fmt.Errorf("retention: verify: %w", err)
	}
	if key.Run == "" {
		ids, err := d.cfg.Log.RunsOf(ctx, key.Tenant)
		if out.LeftInLog = len(ids); err != nil {
			return fmt.Errorf("retention: verify: %w", err)
		}
		return nil
	}
	head, err := d.cfg.Log.Head(ctx, key)
	if err != nil {
		return fmt.Errorf("retention: verify: %w", err)
	}
	if head.HasEvents() {
		out.LeftInLog = 1
	}
	return nil
}
