package natskit

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"agentstream/schema"
)

// Host is an embedded server that can be begun anew below its connections, which find the new one by themselves:
// dial with nats.InProcessServer(host). Safe for concurrent use; Restart and Stop by one goroutine at a time.
type Host struct {
	embedded Embedded

	mu sync.Mutex
	s  *server.Server // nil while there is none
}

var _ nats.InProcessConnProvider = (*Host)(nil)

// ErrStuck reports that a stream has met a write error. It answers no publish any more, until the server is begun anew.
var ErrStuck = errors.New("a stream takes nothing until the server begins anew")

// Start is Serve, for a server that is to be looked after. The caller must call Stop.
func Start(e Embedded) (*Host, error) {
	s, err := Serve(e)
	if err != nil {
		return nil, err
	}
	return &Host{embedded: e, s: s}, nil
}

// swap puts another server in the place of the one that is there, and returns that.
func (h *Host) swap(s *server.Server) *server.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, h.s = h.s, s
	return s
}

func (h *Host) server() *server.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.s
}

// InProcessConn connects to the server of the moment.
func (h *Host) InProcessConn() (net.Conn, error) {
	if s := h.server(); s != nil {
		return s.InProcessConn()
	}
	return nil, errors.New("natskit: the embedded server is being begun anew")
}

// Storing returns nil, or why the server stores nothing: ErrStuck, or schema.ErrFull when all that it may hold is
// used up, which is over when messages expire.
func (h *Host) Storing() error {
	s := h.server()
	if s == nil {
		return fmt.Errorf("natskit: the embedded server is down: %w", ErrStuck)
	}
	// The text is all that distinguishes a write error from a stream that could not be read at start, which another start
	// would not mend.
	if health := s.Healthz(nil); strings.Contains(health.Error, "write error") {
		return fmt.Errorf("natskit: %s: %w", health.Error, ErrStuck)
	}
	use, err := s.Jsz(nil)
	if err != nil {
		return fmt.Errorf("natskit: state of the embedded server: %w", err)
	}
	if used, most := int64(use.Store), use.Config.MaxStore; used > most {
		return fmt.Errorf("natskit: the log holds %d MiB, %d allowed: %w", used>>20, most>>20, schema.ErrFull)
	}
	return nil
}

// Restart ends the server and begins another one on its store. After an error there is none; it may be tried again.
func (h *Host) Restart() error {
	h.Stop()
	s, err := Serve(h.embedded)
	if err != nil {
		return err
	}
	h.swap(s)
	return nil
}

// Stop ends the server and waits until it has ended.
func (h *Host) Stop() {
	if s := h.swap(nil); s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}
