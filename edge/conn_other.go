//go:build !linux

package edge

import (
	"net"
	"time"
)

// limitUnacked is what only Linux offers here; elsewhere the kernel's own limit holds.
func limitUnacked(net.Conn, time.Duration) {}
