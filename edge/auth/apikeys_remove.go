package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// RemoveAPIKeys takes the keys of a tenant out of a file of keys, and returns how many there were. The file is replaced
// whole, so a node that reads it sees all of them or none. Lines that are no keys stay.
func RemoveAPIKeys(path, tenant string) (removed int, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("auth: remove keys of %s: %w", tenant, err)
	}
	var kept bytes.Buffer
	for line := range bytes.Lines(text) {
		var key APIKey
		if json.Unmarshal(line, &key) == nil && key.Tenant == tenant {
			removed++
			continue
		}
		kept.Write(line)
	}
	if removed == 0 {
		return 0, nil
	}
	if err := replaceFile(path, kept.Bytes()); err != nil {
		return 0, fmt.Errorf("auth: remove keys of %s: %w", tenant, err)
	}
	return removed, nil
}

// replaceFile puts a file with another text, and the same mode, in the place of one.
func replaceFile(path string, text []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it is gone when all went well
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(info.Mode().Perm())
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
