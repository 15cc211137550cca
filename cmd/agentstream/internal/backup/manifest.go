package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"agentstream/internal/natskit"
)

// manifestFile is the file of a backup that says what is in it.
const manifestFile = "manifest.json"

// formatVersion is the version of the manifest that this program writes, and the only one that it reads.
const formatVersion = 1

// ErrNoBackup reports that a folder has no manifest that this program reads.
var ErrNoBackup = errors.New("no backup")

// Contents is the manifest of a backup.
type Contents struct {
	Version int             `json:"version"` // of the manifest
	Program string          `json:"program"`
	NATS    string          `json:"nats_server"`
	Began   time.Time       `json:"began"`
	Ended   time.Time       `json:"ended"`
	Tables  *dumpedTables   `json:"tables,omitempty"`
	Objects *listedObjects  `json:"objects,omitempty"`
	Streams []savedSnapshot `json:"streams"`
}

// savedFile is a file of a backup.
type savedFile struct {
	Name   string `json:"file"` // below the backup's folder
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// dumpedTables is what pg_dump has written.
type dumpedTables struct {
	savedFile
	At     time.Time         `json:"at"`     // the tables have at least what was stored then
	Stored map[string]uint64 `json:"stored"` // message of each stream up to which the tables have the log, at least
}

// listedObjects is the list of the objects, and where their bytes are.
type listedObjects struct {
	savedFile
	Count  int   `json:"count"`
	Bytes  int64 `json:"bytes"`
	Copied bool  `json:"copied"` // they are in the folder objects; false: only the list is
}

// savedSnapshot is a stream.
type savedSnapshot struct {
	savedFile
	Stream   string              `json:"stream"`
	Holds    natskit.StreamRange `json:"holds"`
	Snapshot natskit.Snapshot    `json:"snapshot"`
}

// readManifest reads what is in a folder. It wraps ErrNoBackup when there is no backup.
func readManifest(folder string) (c Contents, err error) {
	text, err := os.ReadFile(filepath.Join(folder, manifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("%s: %w: it has no %s, which is written last", folder, ErrNoBackup, manifestFile)
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && c.Version != formatVersion {
		err = fmt.Errorf("%w: version %d of the manifest, this program reads %d", ErrNoBackup, c.Version, formatVersion)
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", folder, err)
	}
	return c, nil
}

// writeManifest writes the manifest at once or not at all.
func writeManifest(folder string, c Contents) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(folder, manifestFile)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// summing counts and sums what is written through it.
type summing struct {
	w    io.Writer
	sum  hash.Hash
	size int64
}

func newSumming(w io.Writer) *summing { return &summing{w: w, sum: sha256.New()} }

func (s *summing) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.sum.Write(p[:n])
	s.size += int64(n)
	return n, err
}

func (s *summing) file(name string) savedFile {
	return savedFile{Name: name, Size: s.size, SHA256: hex.EncodeToString(s.sum.Sum(nil))}
}

// save writes a file of a backup and syncs it.
func save(folder, name string, write func(io.Writer) error) (savedFile, error) {
	path := filepath.Join(folder, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return savedFile{}, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return savedFile{}, err
	}
	s := newSumming(f)
	err = write(s)
	if err == nil {
		err = f.Sync()
	}
	return s.file(name), errors.Join(err, f.Close())
}

// errDamaged reports a file of a backup that is not what was written.
var errDamaged = errors.New("the file is not as the manifest says")

// check compares a file with the manifest.
func (f *savedFile) check(folder string) error {
	if !filepath.IsLocal(filepath.FromSlash(f.Name)) {
		return fmt.Errorf("%q: %w", f.Name, errDamaged)
	}
	r, err := f.open(folder)
	if err != nil {
		return err
	}
	defer r.Close()
	s := newSumming(io.Discard)
	if _, err := io.Copy(s, r); err != nil {
		return err
	}
	if s.file(f.Name) != *f {
		return fmt.Errorf("%s: %w", f.Name, errDamaged)
	}
	return nil
}

func (f *savedFile) open(folder string) (*os.File, error) {
	return os.Open(filepath.Join(folder, filepath.FromSlash(f.Name)))
}
