package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/process"
	"agentstream/persister/blob"
	"agentstream/persister/blob/s3"
)

// BlobFlags say where runs that have ended are kept as objects.
type BlobFlags struct {
	Blobs string `help:"Where runs that have ended are kept: a folder, file:///folder, or s3://bucket/prefix?endpoint=https://host&region=…&path-style=true. Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), the AWS file or the machine's role. With --data: the folder blobs in it, unless off." env:"AGENTSTREAM_BLOBS" placeholder:"URL"`
}

// Of --data.
const (
	blobFolder = "blobs" // where dev keeps objects
	noBlobs    = "off"   // as --blobs: it keeps none
)

// Beside returns the flags for the data of a dev server, which keeps objects beside its tables.
func (f BlobFlags) Beside(data string) *BlobFlags {
	switch {
	case f.Blobs == noBlobs:
		f.Blobs = ""
	case f.Blobs == "" && data != "":
		f.Blobs = filepath.Join(data, blobFolder)
	}
	return &f
}

// ArchiverFlags say where runs that have ended are kept as objects, and when they are written.
type ArchiverFlags struct {
	BlobFlags
	ArchiveSettle time.Duration `help:"How long a run must have ended and rested before it is archived." default:"1m" env:"AGENTSTREAM_ARCHIVE_SETTLE"`
}

// Blobs is an open store of objects. Base is what URIs begin with.
type Blobs struct {
	blob.ObjectStore
	base string
}

// OpenBlobs opens what --blobs names; nil when it names nothing. A folder is created when it does not exist.
func (f *BlobFlags) OpenBlobs() (*Blobs, error) { return f.open(blob.OpenFolder) }

func (f *BlobFlags) open(openFolder func(string) (*blob.Folder, error)) (*Blobs, error) {
	if f.Blobs == "" {
		return nil, nil
	}
	scheme, _, remote := strings.Cut(f.Blobs, "://")
	switch {
	case remote && scheme == "s3":
		cfg, err := s3.Parse(f.Blobs)
		if err != nil {
			return nil, fmt.Errorf("--blobs: %w", err)
		}
		s, err := s3.Open(cfg)
		if err != nil {
			return nil, fmt.Errorf("--blobs: %w", err)
		}
		return &Blobs{s, s.Base()}, nil
	case remote && scheme != "file":
		return nil, errors.New("--blobs must be a folder, file:///folder or s3://bucket") // not quoted: it may hold a password
	}
	folder := f.Blobs
	if remote {
		u, err := url.Parse(f.Blobs)
		if err != nil || u.Host != "" || u.User != nil || u.RawQuery != "" || !filepath.IsAbs(u.Path) {
			return nil, errors.New("--blobs: a file URL is of the form file:///folder")
		}
		folder = u.Path
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("--blobs: %w", err)
	}
	s, err := openFolder(folder)
	if err != nil {
		return nil, fmt.Errorf("--blobs: %w", err)
	}
	return &Blobs{s, blob.FolderBase}, nil
}

// Restorer returns what restores runs from the objects.
func (b *Blobs) Restorer(t blob.Tables, into blob.RestoreTables, log *slog.Logger) (*blob.Restorer, error) {
	return blob.NewRestorer(blob.RestoreConfig{Tables: t, Into: into, Store: b.ObjectStore, Base: b.base, Logger: log})
}

// Tables is a store as the archive needs it. Both stores are one.
type Tables interface {
	blob.Tables
	blob.Heads
}

// Join joins a store's rows and the objects to one history. Without objects it is the rows, and an
// error for runs that have left them.
func Join(t Tables, b *Blobs) (*blob.Archive, error) {
	cfg := blob.Config{Tables: t, Heads: t}
	if b != nil {
		cfg.Store = b.ObjectStore
	}
	return blob.New(cfg)
}

// Archiver returns the part that writes objects; none when there is nowhere to write them.
func (f *ArchiverFlags) Archiver(t blob.Tables, q blob.Queue, large blob.Large, b *Blobs, hooks blob.Hooks,
	log *slog.Logger) ([]process.Part, error) {
	if b == nil {
		return nil, nil
	}
	a, err := f.NewArchiver(t, q, large, b, hooks, log)
	if err != nil {
		return nil, err
	}
	return []process.Part{{Name: "archiver", Run: func(ctx context.Context) error { return a.Run(ctx) }}}, nil
}

// NewArchiver returns what writes runs that have ended as objects into b.
func (f *ArchiverFlags) NewArchiver(t blob.Tables, q blob.Queue, large blob.Large, b *Blobs, hooks blob.Hooks,
	log *slog.Logger) (*blob.Archiver, error) {
	settle := f.ArchiveSettle
	if settle <= 0 {
		settle = -1 // zero means the default there
	}
	return blob.NewArchiver(blob.ArchiverConfig{Tables: t, Queue: q, Large: large, Store: b.ObjectStore, Base: b.base,
		Settle: settle, Logger: log, Hooks: hooks})
}
