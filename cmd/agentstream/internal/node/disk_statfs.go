//go:build linux || darwin || freebsd

package node

import "syscall"

// diskSpace returns what this process may still write on the disk of a folder, and the disk's size, in bytes.
func diskSpace(dir string) (free, all int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}
