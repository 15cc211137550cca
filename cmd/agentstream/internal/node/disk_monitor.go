package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/schema"
)

// DiskMonitor knows whether dev can store: whether its folder's disk has room, and whether the embedded server takes
// anything. A server whose disk was full answers no publish, and stays so when there is room again, so writers
// are refused before the disk is full, and a server that met its end all the same is begun anew.
type DiskMonitor struct {
	Dir  string
	Host *natskit.Host
	Log  *slog.Logger

	full atomic.Pointer[string] // why nothing can be stored; nil: it can
	next atomic.Int64           // when the disk is to be measured again, in nanoseconds

	// Of run alone.
	pause     time.Duration // between the last restart of the server and another one
	notBefore time.Time     // for that one
}

const (
	// So much of a disk is left alone, or a sixteenth of a smaller one: what is under way when writers are
	// refused, and the archive of what they have written, still fit.
	roomReserve = 64 << 20
	roomMeasure = 10 * time.Millisecond // writers measure the disk at most so often
	roomLook    = 500 * time.Millisecond
	roomPause   = 30 * time.Second // between two restarts, at most
)

// err returns nil, or why nothing can be stored, which wraps schema.ErrFull. It is cheap: writers ask each time.
func (r *DiskMonitor) err() error {
	now := time.Now().UnixNano()
	if due := r.next.Load(); r.full.Load() == nil && now >= due && r.next.CompareAndSwap(due, now+int64(roomMeasure)) {
		if why := r.short(); why != "" {
			r.say(why)
		}
	}
	if why := r.full.Load(); why != nil {
		return fmt.Errorf("%s: %w", *why, schema.ErrFull)
	}
	return nil
}

// short returns what is missing on the disk, in words; "" when nothing is. Once it was full, a little more must be
// free.
func (r *DiskMonitor) short() string {
	free, all, err := diskSpace(r.Dir)
	if err != nil {
		return "" // it cannot be measured: what the server says must do
	}
	need := min(roomReserve, all/16)
	if r.full.Load() != nil {
		need += need / 4
	}
	if free >= need {
		return ""
	}
	return fmt.Sprintf("%.1f MiB are free for %s, %.1f are needed", float64(free)/(1<<20), r.Dir, float64(need)/(1<<20))
}

// say notes why nothing can be stored; "": it can.
func (r *DiskMonitor) say(why string) {
	if why == "" {
		if was := r.full.Swap(nil); was != nil {
			r.Log.Info("dev: there is room again")
		}
		return
	}
	if was := r.full.Swap(&why); was == nil {
		r.Log.Error("dev: nothing can be stored, writers are refused", "why", why)
	}
}

// Run looks after the server until ctx ends.
func (r *DiskMonitor) Run(ctx context.Context) error {
	tick := time.NewTicker(roomLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			r.look()
		}
	}
}

func (r *DiskMonitor) look() {
	err := r.Host.Storing()
	if why := r.short(); why != "" {
		r.say(why)
		return
	}
	switch {
	case errors.Is(err, natskit.ErrStuck):
		r.say(err.Error())
		r.restart()
	case errors.Is(err, schema.ErrFull):
		r.say(err.Error())
	case err == nil:
		if r.say(""); time.Since(r.notBefore) > time.Minute {
			r.pause = 0
		}
	}
}

// restart starts the server again if what it needs can be written. What stays broken is not tried in a hurry.
func (r *DiskMonitor) restart() {
	if time.Now().Before(r.notBefore) {
		return
	}
	if err := tryDisk(r.Dir); err != nil {
		r.say(err.Error())
		return
	}
	begun := time.Now()
	err := r.Host.Restart()
	r.pause = min(max(2*r.pause, time.Second), roomPause)
	r.notBefore = time.Now().Add(r.pause)
	if err != nil {
		r.Log.Error("dev: the embedded NATS does not begin again", "err", err)
		return
	}
	r.Log.Warn("dev: the embedded NATS could not write and was begun anew", "took", time.Since(begun))
	if r.Host.Storing() == nil {
		r.say("")
	}
}

// tryDisk writes a file and removes it: quotas and broken disks have free space, too.
func tryDisk(dir string) (err error) {
	path := filepath.Join(dir, "room")
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 1<<20))
	return errors.Join(err, f.Sync(), f.Close())
}

// guardedLog refuses what there is no room for.
type guardedLog struct {
	producers.Log
	room *DiskMonitor
}

// Append refuses with schema.ErrFull.
func (l guardedLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if err := l.room.err(); err != nil {
		return 0, err
	}
	return l.Log.Append(ctx, p, after)
}

// Adopt does so, too: what it stores comes before the spawn.
func (l guardedLog) Adopt(ctx context.Context, root schema.RunKey, children ...string) error {
	if err := l.room.err(); err != nil {
		return err
	}
	return l.Log.Adopt(ctx, root, children...)
}

// Lanes is that of the log within.
func (l guardedLog) Lanes(ctx context.Context, key schema.RunKey, lanes []string) ([]schema.Lane, error) {
	return producers.Lanes(ctx, l.Log, key, lanes)
}

// Hold is that of the log within.
func (l guardedLog) Hold(ctx context.Context, key schema.RunKey, by string) error {
	return producers.Hold(ctx, l.Log, key, by)
}

// Release is that of the log within.
func (l guardedLog) Release(ctx context.Context, key schema.RunKey, by string) error {
	return producers.Release(ctx, l.Log, key, by)
}

// guardedKeys does so for idempotency keys, which are stored before what they are for.
type guardedKeys struct {
	producers.Keys
	room *DiskMonitor
}

// Claim refuses with schema.ErrFull.
func (k guardedKeys) Claim(ctx context.Context, id string, rec producers.KeyRecord) (producers.KeyRecord, error) {
	if err := k.room.err(); err != nil {
		return rec, err
	}
	return k.Keys.Claim(ctx, id, rec)
}
