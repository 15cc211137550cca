//go:build !linux

package poll

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// Poller is for Linux.
type Poller struct{}

// Watch is for Linux.
type Watch struct{}

// ErrNone reports that nobody would call.
var ErrNone = errors.New("poll: there is none on this system")

// New returns none.
func New() (*Poller, error) { return nil, nil }

// Run waits for ctx.
func (p *Poller) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Add takes nothing.
func (p *Poller) Add(net.Conn, func(*Watch)) (*Watch, error) { return nil, ErrNone }

// Put takes nothing.
func (p *Poller) Put(*Watch, syscall.RawConn, Reader) error { return ErrNone }

// Again is never called.
func (w *Watch) Again() error { return ErrNone }

// Stop is never called.
func (w *Watch) Stop() {}

// Live is never called.
func (w *Watch) Live() bool { return false }
