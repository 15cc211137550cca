package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"agentstream/edge/gate"
	"agentstream/edge/transport"
)

// Run serves ln until ctx ends. For DrainDelay it goes on as before but is not ready, then it drains: it stops
// accepting, ends the streams one by one over DrainWindow by breaking them off, lets other requests finish, and returns
// when all handlers have or DrainLimit has passed. A nil error is a shutdown within the limit. Run it once.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	srv := s.httpServer(ctx)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(s.gate.Listen(ln)) }()
	var watch sync.WaitGroup
	defer watch.Wait()
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatch()
	watch.Go(func() { s.live.Watch(watched) })
	if s.peers != nil {
		watch.Go(func() { s.peers.Run(watched) })
	}
	polled, unpoll := context.WithCancel(context.WithoutCancel(ctx)) // until the last stream has ended
	defer unpoll()
	watch.Go(func() { s.cfg.Audit.Run(polled) })
	watch.Go(func() {
		if err := s.poll.Run(polled); err != nil {
			s.cfg.Logger.Error("edge: connections are no longer watched", "err", err)
		}
	})
	select {
	case err := <-served:
		return fmt.Errorf("edge: serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	if err := s.linger(served); err != nil {
		return fmt.Errorf("edge: serve %s: %w", ln.Addr(), err)
	}
	unwatch()
	err := s.drain(context.WithoutCancel(ctx), srv)
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	if err != nil {
		return fmt.Errorf("edge: shut down: %w", err)
	}
	return nil
}

// linger serves for DrainDelay as before, while /readyz, the health service of gRPC and the operators' port say that
// the node goes away. Connections over HTTP/1.1 are closed after their next answer, so a balancer that keeps some for
// reuse moves them.
func (s *Server) linger(served <-chan error) error {
	s.leaving.Store(true)
	if s.cfg.DrainDelay == 0 {
		return nil
	}
	s.cfg.Logger.Info("edge: not ready any more, and still serving", "delay", s.cfg.DrainDelay)
	select {
	case err := <-served:
		return err
	case <-time.After(s.cfg.DrainDelay):
		return nil
	}
}

// Leaving reports whether the node goes away: it is not ready, whatever it serves still. It is safe for concurrent use.
func (s *Server) Leaving() bool { return s.leaving.Load() }

// maxFrame is the most of a frame of HTTP/2, in bytes: each connection keeps room for the largest that has come.
const maxFrame = 16 << 10

// together is how many requests a connection over HTTP/2 may have open. A gRPC client has one connection for all its
// streams, and one too many would wait for another to end, which may never be.
const together = 4096

// together is how many streams of HTTP/2 a connection may have.
func (c Config) together() int {
	if c.MaxStreams > 0 {
		return min(together, c.MaxStreams)
	}
	return together
}

// httpServer has no write time-out: it would end streams. Each write to a client has its own.
func (s *Server) httpServer(ctx context.Context) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: s.cfg.HeaderTimeout,
		IdleTimeout:       s.cfg.IdleTimeout,
		MaxHeaderBytes:    s.cfg.MaxHeaderBytes,
		Protocols:         &protocols,
		// A connection whose other end has vanished is found by pings; on HTTP/1.1 by ConnContext.
		// One that takes nothing is closed a moment after its streams' own deadlines have passed.
		HTTP2: &http.HTTP2Config{SendPingTimeout: s.cfg.KeepAlive, PingTimeout: s.cfg.WriteTimeout,
			WriteByteTimeout:              s.cfg.WriteTimeout + time.Second,
			MaxReceiveBufferPerConnection: gate.Window, MaxReceiveBufferPerStream: gate.Window, MaxReadFrameSize: maxFrame,
			MaxConcurrentStreams: s.cfg.together()},
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			ctx, c = gate.Within(ctx, c)
			limitUnacked(c, s.cfg.KeepAlive+s.cfg.WriteTimeout)
			if t, ok := transport.TCP(c); ok {
				// The kernel would let it grow to megabytes for a client that does not read.
				_ = t.SetWriteBuffer(s.cfg.SendBuffer)
			}
			return ctx
		},
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
}

// drain ends streams and waits for handlers.
func (s *Server) drain(ctx context.Context, srv *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainLimit)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Shutdown(ctx) }() // closes listeners first, then waits
	s.live.Drain(ctx)
	err := <-stopped
	if err == nil { // the HTTP server does not wait for connections that were taken over
		select {
		case <-s.live.Empty():
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	defer s.live.Close()
	if err != nil {
		// Handlers that are still here hang on a client or on the log.
		s.live.Cut()
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "requests cut at shutdown", slog.Duration("limit", s.cfg.DrainLimit))
		err = errors.Join(err, srv.Close())
	}
	return err
}
