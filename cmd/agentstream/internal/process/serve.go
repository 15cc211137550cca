package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Ending is how long a listener takes to close. For Delay it goes on as before, then it waits up to Drain for the calls
// under way. Those that take longer are broken off.
type Ending struct {
	Delay time.Duration
	Drain time.Duration
}

// ServeHTTP answers on ln until ctx ends and the ending has passed.
func ServeHTTP(ctx context.Context, srv *http.Server, ln net.Listener, e Ending) error {
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return fmt.Errorf("serve: %w", err)
	case <-time.After(e.Delay):
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Drain)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		_ = srv.Close() // the callers see it
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Listen opens a TCP listener; the error names the flag.
func Listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return ln, nil
}

// Protocols returns HTTP/1.1, and HTTP/2 without a negotiation of its own: secure.Conn has done that where there is
// TLS.
func Protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &p
}
