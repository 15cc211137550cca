package backup

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/natskit"
)

// BackupCmd copies a deployment, which goes on, into a folder.
type BackupCmd struct {
	cli.NATSFlags
	cli.PostgresFlags
	archive.BlobFlags
	Folder  string `arg:"" name:"folder" help:"Folder for the backup: a new or an empty one." type:"path"`
	Objects string `help:"list: list the objects, whose bytes a bucket keeps by versions or copies of its own; copy: copy them too." enum:"list,copy" default:"list"`
	PgDump  string `help:"PostgreSQL's pg_dump, of the server's version or newer." default:"pg_dump" placeholder:"FILE"`
	JSON    bool   `name:"json" help:"Print one JSON object."`

	cli.Streams `kong:"-"`
}

// Run makes the backup. Tables come first and the log last: so the log has what the tables lack.
func (c *BackupCmd) Run(ctx context.Context, log *slog.Logger) error {
	if c.Postgres == "" {
		return cli.ErrNoPostgres
	}
	if err := makeEmpty(c.Folder); err != nil {
		return err
	}
	nc, err := c.Dial("backup", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	b := Contents{Version: formatVersion, Program: cli.Version(), NATS: nc.ConnectedServerVersion(), Began: time.Now().UTC()}
	if err := c.saveTables(ctx, &b); err != nil {
		return err
	}
	if err := c.saveObjects(ctx, &b); err != nil {
		return err
	}
	if err := c.saveStreams(ctx, nc, &b); err != nil {
		return err
	}
	b.Ended = time.Now().UTC()
	if err := writeManifest(c.Folder, b); err != nil {
		return err
	}
	if err := natskit.PutLastBackup(ctx, nc, b.Began); err != nil {
		c.Notice("the backup is whole, but its time could not be written into the bucket %s, which persist's metric shows: %v",
			natskit.TapsBucket, err)
	}
	return c.report(&b)
}

// makeEmpty makes a folder, unless it is there and empty.
func makeEmpty(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(folder)
	if err == nil && len(files) > 0 {
		err = fmt.Errorf("%s: the folder is not empty; a backup needs one of its own", folder)
	}
	return err
}

func (c *BackupCmd) saveTables(ctx context.Context, b *Contents) error {
	t := &dumpedTables{At: time.Now().UTC(), Stored: make(map[string]uint64)}
	s, done, err := archive.OpenStore(ctx, c.Postgres, "", slog.New(slog.DiscardHandler)) // it warns of administrators
	if err != nil {
		return err
	}
	offsets, err := s.Offsets(ctx)
	done()
	if err != nil {
		return err
	}
	for _, o := range offsets {
		t.Stored[o.Stream] = o.Position
	}
	t.savedFile, err = save(c.Folder, tablesFile, func(w io.Writer) error {
		return dumpTables(ctx, c.PgDump, c.Postgres, w)
	})
	if err != nil {
		return fmt.Errorf("tables: %w; an administrator's connection is needed, because row security hides rows from others", err)
	}
	b.Tables = t
	return nil
}

func (c *BackupCmd) saveObjects(ctx context.Context, b *Contents) error {
	objects, err := c.OpenBlobs()
	if err != nil || objects == nil {
		return err
	}
	b.Objects, err = saveObjects(ctx, objects.ObjectStore, c.Folder, c.Objects == "copy")
	if err != nil {
		err = fmt.Errorf("objects: %w", err)
	}
	return err
}

func (c *BackupCmd) saveStreams(ctx context.Context, nc *nats.Conn, b *Contents) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	layout, err := natskit.Whole(ctx, js)
	if err != nil {
		return err
	}
	names, err := natskit.BackupStreams(ctx, nc, layout)
	if err != nil {
		return err
	}
	for _, name := range names {
		s := savedSnapshot{Stream: name}
		s.savedFile, err = save(c.Folder, "streams/"+name+".snapshot", func(w io.Writer) (err error) {
			s.Snapshot, err = natskit.WriteSnapshot(ctx, nc, name, w)
			return err
		})
		if err != nil {
			return err
		}
		if s.Holds, err = s.Snapshot.Range(); err != nil {
			return fmt.Errorf("snapshot of %s: %w", name, err)
		}
		if stored := b.Tables.Stored[name]; s.Holds.Last < stored {
			c.Notice("%s is shorter than what the tables have of it (%d, %d): it was made again lately", name, s.Holds.Last, stored)
		}
		b.Streams = append(b.Streams, s)
	}
	return nil
}

func (c *BackupCmd) report(b *Contents) error {
	var messages uint64
	size := b.Tables.Size
	for i := range b.Streams {
		messages += b.Streams[i].Holds.Messages
		size += b.Streams[i].Size
	}
	objects := 0
	if b.Objects != nil {
		objects = b.Objects.Count
	}
	if c.JSON {
		short := *b
		short.Streams = slices.Clone(b.Streams)
		for i := range short.Streams {
			short.Streams[i].Snapshot = natskit.Snapshot{}
		}
		return c.Print(true, short, "")
	}
	return c.Print(false, nil, "%s: tables of %s, %d objects, %d streams with %d messages; %d bytes without objects, in %.1f s",
		c.Folder, b.Tables.At.Format(time.RFC3339), objects, len(b.Streams), messages, size, b.Ended.Sub(b.Began).Seconds())
}
