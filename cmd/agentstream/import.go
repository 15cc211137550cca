package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/blob"
	perjs "agentstream/persister/natsjs"
	"agentstream/persister/sqlite"
	"agentstream/schema"
)

// ImportCmd moves the runs of a dev server's folder into a deployment, which may serve meanwhile.
type ImportCmd struct {
	cli.NATSFlags
	cli.PostgresFlags
	Data string `arg:"" name:"folder" help:"Folder of the dev server, which must have ended. It is read; only what its log has and its archive lacks is stored in it first." type:"path"`
	JSON bool   `name:"json" help:"Print one JSON object."`

	cli.Streams `kong:"-"`
}

// imported is what an import has done.
type imported struct {
	Runs    int      `json:"runs"`    // that were looked at
	Moved   int      `json:"moved"`   // of which something was new
	Events  int      `json:"events"`  // that were new
	Blobs   int      `json:"blobs"`   // that the runs have
	Refused []string `json:"refused"` // runs of which the deployment has other events
}

// Run moves every run: its blobs first, then its events. It may be interrupted and run again.
func (c *ImportCmd) Run(ctx context.Context, log *slog.Logger) error {
	target, done, err := archive.OpenStore(ctx, c.Postgres, "", log)
	if err != nil {
		return err
	}
	defer done()
	nc, err := c.Dial("import", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	blobs, err := natskit.NewBlobs(nc)
	if err != nil {
		return err
	}
	from, err := openDevFolder(ctx, c.Data, log)
	if err != nil {
		return err
	}
	defer from.close()
	m := mover{from: from, into: target.Restoring(), blobs: blobs, say: c.Notice, shown: time.Now(),
		done: imported{Refused: []string{}}}
	err = m.run(ctx)
	if n := len(m.done.Refused); err == nil && n > 0 {
		err = fmt.Errorf("import: the deployment has other events of %d runs at the same numbers; nothing of them was changed", n)
	}
	return errors.Join(c.Print(c.JSON, m.done, "%d runs: %d moved with %d events that were new, %d blobs, %d refused",
		m.done.Runs, m.done.Moved, m.done.Events, m.done.Blobs, len(m.done.Refused)), err)
}

// devFolder is the data of a dev server that has ended.
type devFolder struct {
	nc     *nats.Conn
	store  *sqlite.Store
	all    *blob.Archive
	blobs  *natskit.Blobs
	closes []func()
}

func (d *devFolder) close() {
	for i := len(d.closes) - 1; i >= 0; i-- {
		d.closes[i]()
	}
}

// openDevFolder opens a folder that no dev server has, and stores what its log has and its tables lack.
func openDevFolder(ctx context.Context, path string, log *slog.Logger) (d *devFolder, err error) {
	dev := DevCmd{Data: path}
	if err := isDevFolder(path); err != nil {
		return nil, err
	}
	own, err := ownFolder(path)
	if err != nil {
		return nil, fmt.Errorf("%w; end that server first", err)
	}
	d = &devFolder{closes: []func(){func() { _ = own.Close() }}}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	embedded, err := dev.natsOptions()
	if err != nil {
		return d, err
	}
	host, err := natskit.Start(embedded)
	if err != nil {
		return d, err
	}
	d.closes = append(d.closes, host.Stop)
	nc, err := natskit.Dial("", "agentstream import", nats.InProcessServer(host))
	if err != nil {
		return d, err
	}
	d.nc, d.closes = nc, append(d.closes, nc.Close)
	if d.store, err = dev.openStore(ctx); err != nil {
		return d, err
	}
	d.closes = append(d.closes, func() { _ = d.store.Close() })
	if _, d.all, err = dev.openArchive(d.store); err != nil {
		return d, err
	}
	if d.blobs, err = natskit.NewBlobs(nc); err != nil {
		return d, err
	}
	return d, d.storeRest(ctx, nc, log)
}

// openFolderLog opens the log of a folder that no dev server has, after what it has is stored.
func openFolderLog(ctx context.Context, path string, log *slog.Logger) (*nats.Conn, func(), error) {
	d, err := openDevFolder(ctx, path, log)
	if err != nil {
		return nil, nil, err
	}
	return d.nc, d.close, nil
}

// isDevFolder refuses a folder that is misspelt, which would be made and found empty.
func isDevFolder(path string) error {
	for _, name := range []string{"nats", "archive.db"} {
		if _, err := os.Stat(filepath.Join(path, name)); err != nil {
			return fmt.Errorf("%s: it has no %s: it is no folder of a dev server", path, name)
		}
	}
	return nil
}

// storeRest stores what the log has and the tables lack.
func (d *devFolder) storeRest(ctx context.Context, nc *nats.Conn, log *slog.Logger) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	k, err := newKeeping(ctx, js, persister.Config{Store: d.store, Alone: true}, LingerFlags{}, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed = k.persister.Run(ctx)
	}()
	err = awaitStored(ctx, js, d.store, ended)
	cancel()
	<-ended
	return errors.Join(failed, err)
}

// awaitStored waits until the tables have the whole log, or the persister has ended.
func awaitStored(ctx context.Context, js jetstream.JetStream, store perjs.Offsets, ended <-chan struct{}) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		whole, err := isStored(ctx, js, store)
		if err != nil || whole {
			return err
		}
		select {
		case <-tick.C:
		case <-ended:
			return errors.New("import: the folder's log could not be stored")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func isStored(ctx context.Context, js jetstream.JetStream, store perjs.Offsets) (bool, error) {
	offsets, err := store.Offsets(ctx)
	if err != nil {
		return false, err
	}
	at := make(map[string]uint64)
	for _, o := range offsets {
		at[o.Stream] = o.Position
	}
	partitions, err := natskit.Partitions(ctx, js)
	if err != nil {
		return false, err
	}
	for p := range partitions {
		name := natskit.StreamName(p)
		s, err := js.Stream(ctx, name)
		if err != nil {
			return false, err
		}
		if s.CachedInfo().State.LastSeq > at[name] {
			return false, nil
		}
	}
	return true, nil
}

// mover moves runs.
type mover struct {
	from  *devFolder
	into  blob.RestoreTables
	blobs *natskit.Blobs
	say   func(format string, args ...any)
	shown time.Time
	done  imported
}

// showEvery is how often an import prints how far it is.
const showEvery = 5 * time.Second

func (m *mover) run(ctx context.Context) error {
	for key, err := range m.from.store.RunsChangedSince(ctx, time.Unix(0, 0)) {
		if err == nil {
			err = m.moveRun(ctx, key)
		}
		if err != nil {
			return fmt.Errorf("import: run %s: %w", key, err)
		}
		if time.Since(m.shown) >= showEvery {
			m.shown = time.Now()
			m.say("%d runs so far, %d events, %d blobs", m.done.Runs, m.done.Events, m.done.Blobs)
		}
	}
	return nil
}

// moveRun moves one run. Its blobs come first: an archiver of the deployment may write the run as an object at once.
func (m *mover) moveRun(ctx context.Context, key schema.RunKey) error {
	place, err := m.from.store.Place(ctx, key)
	if err != nil || place.Deleted || place.Last == 0 {
		return err
	}
	m.done.Runs++
	if err := m.moveBlobs(ctx, key); err != nil {
		return err
	}
	inserted, err := m.moveEvents(ctx, key, place)
	if errors.Is(err, blob.ErrOtherEvents) {
		m.done.Refused = append(m.done.Refused, key.String())
		m.say("REFUSED\t%s\t%v", key, err)
		return nil
	}
	if err == nil && inserted > 0 {
		m.done.Moved++
	}
	return err
}

func (m *mover) moveBlobs(ctx context.Context, key schema.RunKey) error {
	list, err := m.from.blobs.List(ctx, key)
	if err != nil {
		return err
	}
	for i := range list {
		b, pieces, err := m.from.blobs.Get(ctx, key, list[i].Ref)
		if err != nil {
			return err
		}
		if _, _, err := m.blobs.Put(ctx, key, b.Type, pieces); err != nil {
			return err
		}
		m.done.Blobs++
	}
	return nil
}

// moveEvents moves the events of a run, and returns how many were new. Those that are there are compared.
func (m *mover) moveEvents(ctx context.Context, key schema.RunKey, place persister.Place) (inserted int, err error) {
	packs := m.from.all.Packs(ctx, key, place.Expired, place.Last)
	inserted, last, err := blob.RestorePacks(ctx, m.into, packs)
	m.done.Events += inserted
	if err != nil {
		return inserted, err
	}
	last = max(last, place.Expired)
	if last < place.Last {
		return inserted, fmt.Errorf("the folder lacks the events %d to %d", last+1, place.Last)
	}
	if place.Expired > 0 { // also when another import has ended before it came to this
		err = m.into.BeginAt(ctx, key, place.Expired)
	}
	return inserted, err
}
