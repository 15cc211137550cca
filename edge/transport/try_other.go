//go:build !unix

package transport

import (
	"errors"
	"net"
	"syscall"
)

// Try is for systems that can write without waiting.
type Try struct{}

// NewTry returns nil here: every stream keeps a goroutine.
func NewTry(net.Conn) *Try { return nil }

// Of returns nil here.
func (t *Try) Of(net.Conn) *Try { return nil }

// Raw is never called.
func (t *Try) Raw() syscall.RawConn { return nil }

// Write is never called.
func (t *Try) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Read is never called.
func (t *Try) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }
