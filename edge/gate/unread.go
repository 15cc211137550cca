package gate

import (
	"sync"
	"sync/atomic"
)

// Window is how much of the bodies of a connection over HTTP/2 may be here before somebody reads it, in bytes. It is
// more than the 65,535 that HTTP/2 begins with, on which this package relies.
const Window = 256 << 10

// Of what nobody has read yet, in bytes.
const (
	freeUnread  = 8 << 10  // of a connection that costs nothing: small bodies are read at once
	countedOnce = 16 << 10 // that is counted at a time
)

// A Share is what somebody holds of a memory.
type Share interface {
	Try(n int64) error // holds n bytes more; the error says that there is no room for them
	Give(n int64)      // returns n bytes
}

// debt is what the unread bodies of one connection hold of the memory of a tenant. The zero value holds nothing.
type debt struct {
	mu     sync.Mutex
	tenant string // of the newest caller
	named  bool
	share  Share // of whom held is
	held   int64
	closed bool
}

// name makes the newest caller's tenant the one who pays, from when nothing is held for the one before.
func (d *debt) name(tenant string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tenant, d.named = tenant, true
}

// settle makes what is held what the unread bytes need, and reports whether there is room for that. Where no caller is
// known there is none.
func (d *debt) settle(unread *atomic.Int64, share func(tenant string) Share) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	need := max(unread.Load()-freeUnread+countedOnce-1, 0) / countedOnce * countedOnce
	switch {
	case d.closed:
		return true // what is read from now on is an error
	case need < d.held:
		d.share.Give(d.held - need)
		d.held = need
		return true
	case need == d.held:
		return true
	case !d.named:
		return false
	}
	if d.held == 0 {
		d.share = share(d.tenant)
	}
	if d.share.Try(need-d.held) != nil {
		return false
	}
	d.held = need
	return true
}

// close returns what is held, for good.
func (d *debt) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held > 0 {
		d.share.Give(d.held)
	}
	d.held, d.closed = 0, true
}
