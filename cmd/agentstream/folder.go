package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// errLocked is what lockFile returns for a file that another process has locked.
var errLocked = errors.New("locked by another process")

// inUseError reports a folder that another process has. It is an errLocked.
type inUseError struct{ path, by string }

// Error names the folder and the process.
func (e *inUseError) Error() string { return e.path + ": in use by " + e.by }

// Unwrap returns errLocked.
func (e *inUseError) Unwrap() error { return errLocked }

// ownFolder makes the folder and makes it this process's own until the file that is returned is closed. The
// kernel releases the lock when the process ends, however it ends, so the file stays where it is: what is
// written in it only shows others who has the lock.
func ownFolder(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	f, err := lockFile(filepath.Join(path, "lock"))
	if errors.Is(err, errLocked) {
		return nil, &inUseError{path, ownerOf(filepath.Join(path, "lock"))}
	}
	if err != nil {
		return nil, err
	}
	// A full disk may refuse the text. The lock holds all the same.
	_ = f.Truncate(0)
	_, _ = fmt.Fprintf(f, "process %d since %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	return f, nil
}

// ownerOf reads who has the lock.
func ownerOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "another process"
	}
	defer f.Close()
	var pid int
	var since string
	if _, err := fmt.Fscanf(io.LimitReader(f, 100), "process %d since %s\n", &pid, &since); err != nil {
		return "another process"
	}
	return fmt.Sprintf("process %d since %s", pid, since)
}
