package blob

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Folder is a Store in a folder of the file system. Files are readable by their owner alone.
type Folder struct {
	root string
}

var _ ObjectStore = (*Folder)(nil)

// OpenFolder opens a folder, and creates it when it does not exist.
func OpenFolder(root string) (*Folder, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("blob: open folder: %w", err)
	}
	return &Folder{root: root}, nil
}

// ExistingFolder opens a folder that exists.
func ExistingFolder(root string) (*Folder, error) {
	f := &Folder{root: root}
	return f, f.Ping(context.Background())
}

// Ping returns nil when the folder exists.
func (f *Folder) Ping(context.Context) error {
	if info, err := os.Stat(f.root); err != nil {
		return fmt.Errorf("blob: folder: %w", err)
	} else if !info.IsDir() {
		return errors.New("blob: folder: it is a file")
	}
	return nil
}

// path returns the path of a file. It refuses names that are not of an object, and so those that lead out of the
// folder.
func (f *Folder) path(name string) (string, error) {
	if err := ValidName(name); err != nil {
		return "", err
	}
	return filepath.Join(f.root, filepath.FromSlash(name)), nil
}

// tempPrefix is the beginning of the names of files that are being written. The run follows, so that they can be
// removed with it. List skips them; no run has such a name.
const tempPrefix = ".part-"

// Put implements Store. It writes and syncs a file with a temporary name, links it to its own name, and syncs the
// folder.
func (f *Folder) Put(ctx context.Context, name string, body io.Reader) error {
	full, err := f.path(name)
	if err != nil {
		return err
	}
	if err := f.put(ctx, full, body); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = ErrExists
		}
		return fmt.Errorf("blob: put %s: %w", name, err)
	}
	return nil
}

func (f *Folder) put(ctx context.Context, full string, body io.Reader) (err error) {
	dir := filepath.Dir(full)
	if err := f.mkdir(dir); err != nil {
		return err
	}
	run, _, _ := strings.Cut(filepath.Base(full), ".")
	temp := filepath.Join(dir, tempPrefix+run+"."+rand.Text())
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(temp)) }()
	_, err = io.Copy(file, &checked{ctx, body})
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	// Unlike a rename, a link does not replace what is there.
	if err := os.Link(temp, full); err != nil {
		return err
	}
	return syncDir(dir)
}

// mkdir creates a folder below the root, and syncs each folder that it had to create.
func (f *Folder) mkdir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if dir != f.root && len(dir) > len(f.root) {
		if err := f.mkdir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// checked is a reader that fails when its context has ended.
type checked struct {
	ctx context.Context
	r   io.Reader
}

func (c *checked) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// Read implements Store.
func (f *Folder) Read(ctx context.Context, name string, offset, length int64) ([]byte, int64, error) {
	full, err := f.path(name)
	if err != nil {
		return nil, 0, err
	}
	data, size, err := readFile(ctx, full, offset, length)
	if err != nil {
		if missing(err) {
			err = ErrNotFound
		}
		return nil, 0, fmt.Errorf("blob: read %s: %w", name, err)
	}
	return data, size, nil
}

// missing reports whether err means that the file does not exist. A file whose name is too long for the file system
// cannot exist.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG)
}

func readFile(ctx context.Context, full string, offset, length int64) (data []byte, size int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	file, err := os.Open(full)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	size = info.Size()
	if offset < 0 {
		offset = max(0, size-length)
	}
	data = make([]byte, max(0, min(length, size-offset)))
	if _, err := file.ReadAt(data, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	return data, size, nil
}

// Delete implements Store. It does not remove folders that become empty: another process may be about to write into
// them.
func (f *Folder) Delete(_ context.Context, name string) error {
	full, err := f.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(full); err != nil && !missing(err) {
		return fmt.Errorf("blob: delete %s: %w", name, err)
	}
	return nil
}

// name returns the name of a file relative to the folder.
func (f *Folder) name(p string) (string, error) {
	rel, err := filepath.Rel(f.root, p)
	return filepath.ToSlash(rel), err
}

// apart reports whether no name in a folder can begin with prefix.
func apart(folder, prefix string) bool {
	return folder != "." && !strings.HasPrefix(folder+"/", prefix) && !strings.HasPrefix(prefix, folder+"/")
}

// walk calls fn for each file whose name may begin with prefix. The error of a file that is removed meanwhile is none.
func (f *Folder) walk(ctx context.Context, prefix string, fn func(file, name string, d fs.DirEntry) error) error {
	return filepath.WalkDir(f.root, func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		name, err := f.name(p)
		if err != nil || d.IsDir() && apart(name, prefix) {
			return cmp.Or(err, fs.SkipDir)
		}
		if d.IsDir() {
			return nil
		}
		if err := fn(p, name, d); !missing(err) {
			return err
		}
		return nil
	})
}

// Sweep removes temporary files of objects whose names begin with prefix, which a Put that was killed before a time
// has left.
func (f *Folder) Sweep(ctx context.Context, prefix string, before time.Time) error {
	err := f.walk(ctx, prefix, func(file, name string, d fs.DirEntry) error {
		dir, base := path.Split(name)
		if !strings.HasPrefix(base, tempPrefix) || !strings.HasPrefix(dir+strings.TrimPrefix(base, tempPrefix), prefix) {
			return nil
		}
		info, err := d.Info()
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(file)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("blob: sweep: %w", err)
	}
	return nil
}

// List implements Store. It also returns files with names that Put would not have used.
func (f *Folder) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		err := f.walk(ctx, prefix, func(_, name string, d fs.DirEntry) error {
			if !strings.HasPrefix(name, prefix) || strings.HasPrefix(path.Base(name), tempPrefix) {
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if !yield(Object{Name: name, Size: info.Size(), Modified: info.ModTime()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(Object{}, fmt.Errorf("blob: list: %w", err))
		}
	}
}
