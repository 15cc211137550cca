//go:build unix

package process

import (
	"errors"
	"os"
	"syscall"
)

// FilesHere divides the descriptors of this process.
func FilesHere() Files {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return Files{}
	}
	open := leastKept
	if list, err := os.ReadDir("/dev/fd"); err == nil {
		open = len(list)
	}
	return shareFiles(int(min(uint64(l.Cur), 1<<30)), open)
}

// noFiles reports whether an error means that there are no descriptors left.
func noFiles(err error) bool { return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) }
