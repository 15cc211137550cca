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

var _ Store = (*Folder)(nil)

// OpenFolder opens a folder, which is made when it is not there.
func OpenFolder(root string) (*Folder, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("blob: open folder: %w", err)
	}
	return &Folder{root: root}, nil
}

// Ping reports whether the folder is there.
func (f *Folder) Ping(context.Context) error {
	if info, err := os.Stat(f.root); err != nil {
		return fmt.Errorf("blob: folder: %w", err)
	} else if !info.IsDir() {
		return errors.New("blob: folder: it is a file")
	}
	return nil
}

// path refuses names that are not of an object, and so those that lead out of the folder.
func (f *Folder) path(name string) (string, error) {
	if err := ValidName(name); err != nil {
		return "", err
	}
	return filepath.Join(f.root, filepath.FromSlash(name)), nil
}

// tempPrefix marks files that are being written. The run follows, so that they can be removed with it. List leaves
// them out; no run is called so.
const tempPrefix = ".part-"

// Put implements Store: a file of another name is written, synced and linked to its own, and the
// folder is synced.
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

// mkdir makes a folder below the root and makes each one durable that it had to make.
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

// checked ends a copy with its context.
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

// missing reports whether there is no such file. A run whose name is longer than a file system takes was
// never written.
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

// Delete implements Store. Folders that become empty stay: somebody may be about to write into them.
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

// name returns the name of a file within the folder.
func (f *Folder) name(p string) (string, error) {
	rel, err := filepath.Rel(f.root, p)
	return filepath.ToSlash(rel), err
}

// apart reports whether no name in a folder begins with prefix.
func apart(folder, prefix string) bool {
	return folder != "." && !strings.HasPrefix(folder+"/", prefix) && !strings.HasPrefix(prefix, folder+"/")
}

// Sweep removes what a Put, of an object whose name begins with prefix, that was killed before has left.
func (f *Folder) Sweep(ctx context.Context, prefix string, before time.Time) error {
	err := filepath.WalkDir(f.root, func(p string, d fs.DirEntry, err error) error {
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
		dir, base := path.Split(name)
		if d.IsDir() || !strings.HasPrefix(base, tempPrefix) || !strings.HasPrefix(dir+strings.TrimPrefix(base, tempPrefix), prefix) {
			return nil
		}
		info, err := d.Info()
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(p)
		}
		if missing(err) {
			return nil // it has gone meanwhile
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("blob: sweep: %w", err)
	}
	return nil
}

// List implements Store. It returns files that Put would not have named as they are.
func (f *Folder) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		err := filepath.WalkDir(f.root, func(p string, d fs.DirEntry, err error) error {
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
			if !strings.HasPrefix(name, prefix) || strings.HasPrefix(path.Base(name), tempPrefix) {
				return nil
			}
			info, err := d.Info()
			if err != nil {
				if missing(err) {
					return nil // it has gone meanwhile
				}
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
