//go:build !linux && !darwin && !freebsd

package node

import "errors"

// diskSpace is not known here.
func diskSpace(string) (free, all int64, err error) { return 0, 0, errors.ErrUnsupported }
