package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ErrNone reports that PostgreSQL's programs are not on this machine.
var ErrNone = errors.New("no PostgreSQL on this machine")

// Programs returns the folder in which all named programs and initdb lie: that of initdb in PATH, or else the newest in
// /usr/lib/postgresql. They must lie in one folder: what PATH finds may be a part, or wrappers. The error wraps
// ErrNone.
func Programs(names ...string) (string, error) {
	names = append(names, "initdb")
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	version := func(p string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(p))))
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append([]string{path}, found...)
	}
	for _, path := range found {
		dir := filepath.Dir(path)
		if !slices.ContainsFunc(names, func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err != nil
		}) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%w: %s are together neither in PATH nor in /usr/lib/postgresql/*/bin", ErrNone,
		strings.Join(names, ", "))
}

// User returns the user to run the server as, since PostgreSQL refuses to run as root; nil: this one.
func User() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("there is no user but root")
}
