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
)

// Run serves ln until ctx ends, then drains: it stops accepting, ends the streams one by one over
// DrainWindow by breaking them off, lets other requests finish, and returns when all handlers have
// or DrainLimit has passed. A nil error is a shutdown within the limit. Run it once.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	srv := s.httpServer(ctx)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	var watch sync.WaitGroup
	defer watch.Wait()
	watched, unwatch := context.WithCancel(ctx)
	defer unwatch()
	watch.Go(func() { s.recheck(watched) })
	polled, unpoll := context.WithCancel(context.WithoutCancel(ctx)) // until the last stream has ended
	defer unpoll()
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
	err := s.drain(context.WithoutCancel(ctx), srv)
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	if err != nil {
		return fmt.Errorf("edge: shut down: %w", err)
	}
	return nil
}

// unread is how much of the bodies of a connection over HTTP/2 may be here before somebody reads it, in bytes. It is
// beside Config.BodyMemory.
const unread = 256 << 10

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
		HTTP2: &http.HTTP2Config{SendPingTimeout: s.cfg.KeepAlive, PingTimeout: s.cfg.WriteTimeout, WriteByteTimeout: s.cfg.WriteTimeout + time.Second,
			MaxReceiveBufferPerConnection: unread, MaxReceiveBufferPerStream: unread},
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			limitUnacked(c, s.cfg.KeepAlive+s.cfg.WriteTimeout)
			if t, ok := c.(*net.TCPConn); ok {
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
	s.endStreams(ctx)
	err := <-stopped
	if err == nil { // the HTTP server does not wait for connections that were taken over
		select {
		case <-s.empty:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	defer s.views.close()
	if err != nil {
		// Handlers that are still here hang on a client or on the log.
		s.cutTaken()
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "requests cut at shutdown", slog.Duration("limit", s.cfg.DrainLimit))
		err = errors.Join(err, srv.Close())
	}
	return err
}

// endStreams ends the open streams one after another, spread over DrainWindow, so that their clients
// do not arrive elsewhere all at once. The order is the map's, which is random enough.
func (s *Server) endStreams(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	close(s.closing)
	left := make([]*life, 0, len(s.streams))
	for l := range s.streams {
		left = append(left, l)
	}
	if len(left) == 0 {
		close(s.empty)
	}
	s.mu.Unlock()
	if len(left) == 0 {
		return
	}
	begun := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, l := range left {
		// The first goes at once, the last at the end of the window.
		due := time.Duration(float64(s.cfg.DrainWindow) * float64(i) / float64(len(left)))
		timer.Reset(time.Until(begun.Add(due)))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		l.end(errDraining)
	}
}

// take notes that a stream's connection is not the HTTP server's any more, which would close it.
func (s *Server) take(l *life, conn interface{ Cut() }) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.conn = conn
	if s.cut {
		conn.Cut()
	}
}

// cutTaken closes what the HTTP server does not.
func (s *Server) cutTaken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
	for l := range s.streams {
		if l.conn != nil {
			l.conn.Cut()
		}
	}
}

// enter counts a stream in. It wraps errDraining or errBusy when there is no place.
func (s *Server) enter(l *life) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errDraining
	}
	if s.cfg.MaxStreams > 0 && len(s.streams) >= s.cfg.MaxStreams {
		return fmt.Errorf("%d streams: %w", len(s.streams), errBusy)
	}
	s.streams[l] = struct{}{}
	return nil
}

func (s *Server) leave(l *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, in := s.streams[l]; !in {
		return
	}
	if delete(s.streams, l); s.draining && len(s.streams) == 0 {
		close(s.empty)
	}
}
