package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/natskit"
	"agentstream/persister/postgres/tables"
)

// RestoreCmd brings a backup back, into servers that are empty.
type RestoreCmd struct {
	cli.NATSFlags
	cli.PostgresFlags
	archive.BlobFlags
	Folder    string   `arg:"" name:"folder" help:"Folder of the backup." type:"path"`
	Only      []string `help:"Only these parts: tables, objects, streams." enum:"tables,objects,streams" placeholder:"PART"`
	Replicas  int      `help:"Copies of each stream; 0: as many as it had." default:"0"`
	NewLog    bool     `help:"Leave the log and the places of taps out: the tables must have all of the log. migrate then makes another one, with any number of partitions."`
	PgRestore string   `help:"PostgreSQL's pg_restore, of the version of the pg_dump that was used, or newer." default:"pg_restore" placeholder:"FILE"`
	JSON      bool     `name:"json" help:"Print one JSON object."`

	cli.Streams `kong:"-"`
}

// restored is what a restore has done.
type restored struct {
	Tables       bool     `json:"tables"` // false: they were there, or were not asked for
	ObjectsPut   int      `json:"objects_put"`
	ObjectsThere int      `json:"objects_there"`
	Streams      []string `json:"streams"`
	StreamsThere []string `json:"streams_there"`
}

// Run compares the whole backup with its manifest before it changes anything, and then brings back what is missing.
func (c *RestoreCmd) Run(ctx context.Context, log *slog.Logger) error {
	b, err := readManifest(c.Folder)
	if err != nil {
		return err
	}
	if c.NewLog {
		if err := b.dropLog(); err != nil {
			return err
		}
	}
	if err := b.check(c.Folder, c.isWanted); err != nil {
		return err
	}
	done := restored{Streams: []string{}, StreamsThere: []string{}}
	if c.isWanted("tables") && b.Tables != nil {
		if done.Tables, err = c.restoreTables(ctx, &b); err != nil {
			return err
		}
	}
	if c.isWanted("objects") && b.Objects != nil {
		if err := c.restoreObjects(ctx, &b, &done); err != nil {
			return err
		}
	}
	if c.isWanted("streams") {
		if err := c.restoreStreams(ctx, log, &b, &done); err != nil {
			return err
		}
	}
	return c.Print(c.JSON, done, "tables: %s; objects: %d put, %d were there; streams: %d restored, %d were there; now: agentstream migrate",
		map[bool]string{true: "restored", false: "left as they are"}[done.Tables], done.ObjectsPut, done.ObjectsThere,
		len(done.Streams), len(done.StreamsThere))
}

func (c *RestoreCmd) isWanted(part string) bool {
	return len(c.Only) == 0 || slices.Contains(c.Only, part)
}

// errParts reports parts that a backup does not have.
var errParts = errors.New("the backup does not have this part")

// check compares the files of the parts that are wanted with the manifest.
func (b *Contents) check(folder string, isWanted func(part string) bool) error {
	var all []savedFile
	if b.Tables != nil && isWanted("tables") {
		all = append(all, b.Tables.savedFile)
	}
	if b.Objects != nil && isWanted("objects") {
		all = append(all, b.Objects.savedFile)
	}
	for i := range b.Streams {
		if isWanted("streams") {
			all = append(all, b.Streams[i].savedFile)
		}
	}
	if len(all) == 0 {
		return errParts
	}
	for i := range all {
		if err := all[i].check(folder); err != nil {
			return err
		}
	}
	return nil
}

// restoreTables restores the tables of an empty database.
func (c *RestoreCmd) restoreTables(ctx context.Context, b *Contents) (bool, error) {
	if c.Postgres == "" {
		return false, cli.ErrNoPostgres
	}
	empty, err := tables.Empty(ctx, c.Postgres)
	if err != nil {
		return false, err
	}
	if !empty {
		if len(c.Only) > 0 {
			return false, errors.New("tables: the database has tables of agentstream; restore into an empty one")
		}
		c.Notice("the database has tables of agentstream: they are left as they are")
		return false, c.forgetLog(ctx, b)
	}
	r, err := b.Tables.open(c.Folder)
	if err != nil {
		return false, err
	}
	defer r.Close()
	if err := restoreTables(ctx, c.PgRestore, c.Postgres, r); err != nil {
		return false, fmt.Errorf("tables: %w", err)
	}
	return true, c.forgetLog(ctx, b)
}

func (c *RestoreCmd) restoreObjects(ctx context.Context, b *Contents, done *restored) error {
	store, err := c.OpenBlobs()
	if err == nil && store == nil {
		err = errors.New("--blobs (or AGENTSTREAM_BLOBS) is required: the backup has objects")
	}
	if err != nil {
		return err
	}
	got, err := restoreObjects(ctx, store.ObjectStore, c.Folder, b.Objects)
	done.ObjectsPut, done.ObjectsThere = got.put, got.there
	return err
}

func (c *RestoreCmd) restoreStreams(ctx context.Context, log *slog.Logger, b *Contents, done *restored) error {
	nc, err := c.Dial("restore", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for i := range b.Streams {
		s := &b.Streams[i]
		err := c.restoreStream(ctx, nc, s)
		switch {
		case errors.Is(err, natskit.ErrStreamExists):
			if err := sameStream(ctx, js, s); err != nil {
				return err
			}
			done.StreamsThere = append(done.StreamsThere, s.Stream)
		case err != nil:
			return err
		default:
			done.Streams = append(done.Streams, s.Stream)
		}
	}
	return nil
}

func (c *RestoreCmd) restoreStream(ctx context.Context, nc *nats.Conn, s *savedSnapshot) error {
	r, err := s.open(c.Folder)
	if err != nil {
		return err
	}
	defer r.Close()
	return natskit.RestoreSnapshot(ctx, nc, s.Stream, s.Snapshot, c.Replicas, r)
}

// sameStream compares a stream that is there with the one of the backup: it may only have dropped messages of age.
// Buckets go on by themselves: of them the servers' own counts.
func sameStream(ctx context.Context, js jetstream.JetStream, s *savedSnapshot) error {
	if strings.HasPrefix(s.Stream, "KV_") {
		return nil
	}
	have, err := js.Stream(ctx, s.Stream)
	if err != nil {
		return err
	}
	state := have.CachedInfo().State
	if state.LastSeq != s.Holds.Last {
		return fmt.Errorf("%s is there and ends with message %d, that of the backup with %d: restore into servers without it",
			s.Stream, state.LastSeq, s.Holds.Last)
	}
	return nil
}
