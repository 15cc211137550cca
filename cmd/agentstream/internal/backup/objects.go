package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"agentstream/persister/blob"
)

// objectsFile is where the list of objects is, and objectsFolder where their bytes are.
const (
	objectsFile   = "objects.jsonl"
	objectsFolder = "objects"
)

// objectPiece is how much of an object is read at once.
const objectPiece = 4 << 20

// readObject writes an object's bytes to w.
func readObject(ctx context.Context, store blob.ObjectStore, name string, w io.Writer) error {
	for at := int64(0); ; {
		data, size, err := store.Read(ctx, name, at, objectPiece)
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		at += int64(len(data))
		if at >= size {
			return nil
		}
		if len(data) == 0 {
			return fmt.Errorf("%s: %w", name, io.ErrUnexpectedEOF)
		}
	}
}

// saveObjects lists the objects with their check sums, and copies them when copied is set. What is removed or replaced
// meanwhile is left out: a run that goes on gets a longer object.
func saveObjects(ctx context.Context, store blob.ObjectStore, folder string, copied bool) (*listedObjects, error) {
	l := &listedObjects{Copied: copied}
	var err error
	l.savedFile, err = save(folder, objectsFile, func(w io.Writer) error {
		lines := json.NewEncoder(w)
		for o, err := range store.List(ctx, "") {
			if err != nil {
				return err
			}
			f, err := saveObject(ctx, store, folder, o.Name, copied)
			if errors.Is(err, blob.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			l.Count++
			l.Bytes += f.Size
			if err := lines.Encode(f); err != nil {
				return err
			}
		}
		return nil
	})
	return l, err
}

func saveObject(ctx context.Context, store blob.ObjectStore, folder, name string, copied bool) (savedFile, error) {
	if copied {
		f, err := save(folder, objectsFolder+"/"+name, func(w io.Writer) error { return readObject(ctx, store, name, w) })
		f.Name = name
		if err != nil {
			err = errors.Join(err, os.Remove(filepath.Join(folder, objectsFolder, filepath.FromSlash(name))))
		}
		return f, err
	}
	s := newSumming(io.Discard)
	err := readObject(ctx, store, name, s)
	return s.file(name), err
}

// restoredObjects is what restoreObjects has done.
type restoredObjects struct{ put, there int }

// restoreObjects puts objects that are missing, and compares those that are there. Where only the list was kept, it
// compares alone.
func restoreObjects(ctx context.Context, store blob.ObjectStore, folder string, l *listedObjects) (done restoredObjects,
	err error) {
	r, err := l.open(folder)
	if err != nil {
		return done, err
	}
	defer r.Close()
	lines := json.NewDecoder(r)
	for {
		var f savedFile
		err := lines.Decode(&f)
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if err != nil {
			return done, err
		}
		put, err := restoreObject(ctx, store, folder, &f, l.Copied)
		if err != nil {
			return done, err
		}
		if put {
			done.put++
		} else {
			done.there++
		}
	}
}

// restoreObject puts one object, unless it is there with the same bytes.
func restoreObject(ctx context.Context, store blob.ObjectStore, folder string, f *savedFile, copied bool) (put bool,
	err error) {
	s := newSumming(io.Discard)
	err = readObject(ctx, store, f.Name, s)
	if err == nil && s.file(f.Name) != *f {
		return false, fmt.Errorf("object %s is there with other content", f.Name)
	}
	if err == nil || !errors.Is(err, blob.ErrNotFound) {
		return false, err
	}
	if !copied {
		return false, fmt.Errorf("object %s is missing, and the backup has only the list: bring the bucket back first", f.Name)
	}
	kept := savedFile{Name: objectsFolder + "/" + f.Name, Size: f.Size, SHA256: f.SHA256}
	if err := kept.check(folder); err != nil {
		return false, err
	}
	r, err := kept.open(folder)
	if err != nil {
		return false, err
	}
	defer r.Close()
	return true, store.Put(ctx, f.Name, r)
}
