//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
)

// filesHere divides the descriptors of this process.
func filesHere() files {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return files{}
	}
	open := leastKept
	if list, err := os.ReadDir("/dev/fd"); err == nil {
		open = len(list)
	}
	return shareFiles(int(min(uint64(l.Cur), 1<<30)), open)
}

// noFiles reports whether an error says that there are no descriptors left.
func noFiles(err error) bool { return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) }
