package keyservice

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentstream/schema"
)

// File is a key service in a folder: a file for each tenant, with a line for each version of its key. Whoever reads the
// folder reads everything, so it does not belong where the log, the tables or backups are.
type File struct{ folder string }

// NewFile returns the key service of a folder, which must be there.
func NewFile(folder string) (*File, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("key service: %s is no folder", folder)
	}
	return &File{folder: folder}, nil
}

// Endings of the names of files.
const (
	fileKey  = ".key"     // the versions of a tenant's key
	fileGone = ".deleted" // how many versions there were of one that was deleted
)

const keyBytes = 32

// maxFile bounds a file of keys, in bytes.
const maxFile = 1 << 20

func (f *File) path(tenant, ending string) string { return filepath.Join(f.folder, tenant+ending) }

// Derive implements seal.Deriver.
func (f *File) Derive(_ context.Context, tenant string, version int, label string) ([]byte, int, error) {
	keys, err := f.read(tenant)
	if err != nil {
		return nil, 0, err
	}
	version = cmp.Or(version, keys[len(keys)-1].version)
	for _, k := range keys {
		if k.version == version {
			h := hmac.New(sha256.New, k.bytes)
			h.Write([]byte(label))
			return h.Sum(nil), version, nil
		}
	}
	return nil, 0, errGone(tenant)
}

// fileVersion is one version of a key.
type fileVersion struct {
	version int
	bytes   []byte
}

// read reads a tenant's key, oldest version first. It has one version at least.
func (f *File) read(tenant string) (keys []fileVersion, err error) {
	if err := schema.ValidTenant(tenant); err != nil {
		return nil, errGone(tenant)
	}
	info, err := os.Stat(f.path(tenant, fileKey))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(f.folder); err != nil { // not mounted
			return nil, errAway(err)
		}
		return nil, errGone(tenant)
	}
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("%d bytes", info.Size())
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(f.path(tenant, fileKey))
	}
	if err != nil {
		return nil, errAway(err)
	}
	for line := range strings.Lines(string(text)) {
		number, secret, _ := strings.Cut(strings.TrimSpace(line), " ")
		version, err := strconv.Atoi(number)
		key, bad := base64.StdEncoding.DecodeString(secret)
		if err != nil || bad != nil || version < 1 || len(key) != keyBytes {
			return nil, errAway(fmt.Errorf("the key of tenant %s is damaged", tenant))
		}
		keys = append(keys, fileVersion{version, key})
	}
	if len(keys) == 0 {
		return nil, errAway(fmt.Errorf("the key of tenant %s is empty", tenant))
	}
	slices.SortFunc(keys, func(a, b fileVersion) int { return cmp.Compare(a.version, b.version) })
	return keys, nil
}

// Create makes the first version of a tenant's key. It wraps ErrExists when there is one.
func (f *File) Create(_ context.Context, tenant string) error {
	if err := schema.ValidTenant(tenant); err != nil {
		return err
	}
	before, err := f.countDeleted(tenant)
	if err != nil {
		return err
	}
	return f.write(tenant, nil, before+1)
}

// Rotate adds a version, which is that of new content. Content of before is opened by the older ones.
func (f *File) Rotate(_ context.Context, tenant string) error {
	keys, err := f.read(tenant)
	if err != nil {
		return err
	}
	return f.write(tenant, keys, keys[len(keys)-1].version+1)
}

// write replaces a tenant's file by one that has a new version, too; without versions of before there must be none.
func (f *File) write(tenant string, keys []fileVersion, version int) error {
	secret := make([]byte, keyBytes)
	rand.Read(secret) // never fails
	var text strings.Builder
	for _, k := range append(keys, fileVersion{version, secret}) {
		fmt.Fprintf(&text, "%d %s\n", k.version, base64.StdEncoding.EncodeToString(k.bytes))
	}
	at := f.path(tenant, fileKey)
	part := at + "." + rand.Text()[:8]
	if err := writeSynced(part, text.String()); err != nil {
		return err
	}
	defer os.Remove(part)
	if keys != nil {
		if err := os.Rename(part, at); err != nil {
			return err
		}
		return syncFolder(f.folder)
	}
	if err := os.Link(part, at); err != nil { // unlike a rename it replaces nothing
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("tenant %s: %w", tenant, ErrExists)
		}
		return err
	}
	return syncFolder(f.folder)
}

// Delete removes all versions of a tenant's key for ever. Copies of the folder that others have made are not its to remove.
func (f *File) Delete(_ context.Context, tenant string) error {
	keys, err := f.read(tenant)
	if err != nil {
		return err
	}
	last := strconv.Itoa(keys[len(keys)-1].version)
	if err := writeSynced(f.path(tenant, fileGone), last+"\n"); err != nil {
		return err
	}
	at := f.path(tenant, fileKey)
	if err := overwrite(at); err != nil {
		return err
	}
	if err := os.Remove(at); err != nil {
		return err
	}
	return syncFolder(f.folder)
}

// countDeleted returns how many versions a key had that was deleted.
func (f *File) countDeleted(tenant string) (int, error) {
	text, err := os.ReadFile(f.path(tenant, fileGone))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s is damaged", f.path(tenant, fileGone))
	}
	return n, nil
}

// List returns the keys of all tenants, by name, those too that were deleted.
func (f *File) List(context.Context) (list []Info, err error) {
	entries, err := os.ReadDir(f.folder)
	if err != nil {
		return nil, errAway(err)
	}
	for _, e := range entries {
		tenant, isKey := strings.CutSuffix(e.Name(), fileKey)
		if !isKey {
			tenant = strings.TrimSuffix(e.Name(), fileGone)
		}
		if tenant == e.Name() || schema.ValidTenant(tenant) != nil {
			continue
		}
		made := time.Time{}
		if info, err := e.Info(); err == nil {
			made = info.ModTime()
		}
		if isKey {
			keys, err := f.read(tenant)
			if err != nil {
				return nil, err
			}
			list = append(list, Info{Tenant: tenant, Version: keys[len(keys)-1].version, Made: made})
		} else if _, err := os.Stat(f.path(tenant, fileKey)); err != nil {
			list = append(list, Info{Tenant: tenant, Made: made})
		}
	}
	return list, nil
}

// writeSynced writes a file that its owner alone may read.
func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// overwrite replaces the bytes of a file in their place, where the file system does that.
func overwrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(make([]byte, info.Size()), 0)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
