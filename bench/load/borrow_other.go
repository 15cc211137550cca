//go:build !unix

package load

import "net"

// readTo calls feed with what comes until the connection or feed ends.
func readTo(conn net.Conn, feed func([]byte) error) error { return readOwn(conn, feed) }
